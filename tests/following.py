"""A follower at work while a thread writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from cachedoctor.inputs.sources.follow import FollowSource

POLL = 0.01
Step = Callable[[], object]


def append(path: Path, data: bytes) -> Step:
    def step() -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def followed(path: Path, write: Callable[[Step], object]) -> bytes:
    """All bytes that a follower saw while a thread ran ``write``.

    What ``write`` is given waits until the follower has read everything and looked at the file name again.
    """
    looks, done = [0], threading.Event()

    def stop() -> bool:
        looks[0] += 1
        return done.is_set()

    def settle() -> None:
        enough = looks[0] + 4
        while looks[0] < enough:
            time.sleep(POLL / 4)

    def run() -> None:
        try:
            settle()
            write(settle)
        finally:
            done.set()

    writer = threading.Thread(target=run, daemon=True)
    writer.start()
    data = b"".join(FollowSource(str(path), POLL, stop).chunks())
    writer.join()
    return data


def one_by_one(*steps: Step) -> Callable[[Step], None]:
    def write(settle: Step) -> None:
        for step in steps:
            step()
            settle()

    return write
