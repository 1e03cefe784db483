"""Count the lines that a follower loses while its log is rotated in a storm, by copy and by rename.

usage: rotations.py [--storms 20] [--requests 1700] [--seed 1]

A storm is a server that writes requests without a pause, a rotator beside it that knows nothing of the server, and
``cachedoctor analyze --follow``. Half of the storms copy the log and cut it (logrotate's copytruncate), half rename it
and have the server open a new one some milliseconds later; names are shifted numbers or dates, and pauses between
rotations are random, from none to several of the follower's looks. The last rotation comes after the last line, and
Ctrl-C right after it. No rotated file is deleted. What the server writes between the copy and the cut is lost by the
rotator: a request counts when all of its lines are in the files at the end, and is lost when the report does not have
it. Exit status 1 when one was lost, or read twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plan import Plan
from process import ours
from table import Row

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from command import HEAD, TURN

STORMS, REQUESTS, SEED = 20, 1700, 1
QUICK = 4, 300
KINDS = ("copy", "rename")
PAUSES = ((0.0, 0.001), (0.005, 0.01), (0.02, 0.03), (0.05, 0.06), (0.0, 0.2))
"""Seconds between two rotations, from and to, of the storms of each kind in turns; a follower looks every 0.05 s."""
MOST = 900
"""Rotations of a storm: names of rotated files have three digits at most."""
SPEED = 1000
"""Requests a second that the server writes at most."""
TOKENS = 1900
PATIENCE = 120.0


class Storm(NamedTuple):
    """What one of them took away."""

    kind: str
    seed: int
    rotations: int
    written: int
    """Requests of the server."""
    left: int
    """Those of which the rotator left all lines in some file."""
    lost: int
    """Those of them that the report does not have."""
    twice: int
    """Those that it has more than once."""


class Server:
    """Appends requests to a log, and reopens it when it is told to."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path, self._chance = path, chance
        self._file = path.open("ab", buffering=0)
        self.reopens = threading.Event()

    def write(self, count: int) -> None:
        """Write ``count`` requests line by line, some of the lines in two goes."""
        for task in range(count):
            turn = TURN.format(task=task, tokens=TOKENS, similarity="", diff="")
            for line in turn.encode().splitlines(keepends=True):
                cut = self._chance.choice((0, 0, 0, 40))
                self._file.write(line[:cut])
                self._file.write(line[cut:])
                if self.reopens.is_set():
                    self.reopens.clear()
                    self._file.close()
                    self._file = self._path.open("ab", buffering=0)
            time.sleep(self._chance.random() * 2 / SPEED)
        self._file.close()


class Rotator:
    """Rotates a log until it is told to end."""

    def __init__(self, path: Path, server: Server, kind: str, seed: int) -> None:
        self._path, self._server = path, server
        self._chance = chance = random.Random(seed)
        self._pauses = PAUSES[seed // len(KINDS) % len(PAUSES)]
        self._rotate = self._copy if kind == "copy" else self._rename
        self._is_dated = chance.random() < 0.5
        self.rotations = 0

    def rotate_until(self, done: threading.Event) -> None:
        """Rotate with random pauses; the last rotation comes after the last line."""
        while not done.is_set():
            time.sleep(self._chance.uniform(*self._pauses))
            if self.rotations < MOST:
                self._rotate()

    def files(self) -> list[Path]:
        """Everything that was rotated, oldest first, and the log."""
        numbers = range(1, self.rotations + 1)
        names = [f"-{20260101 + n}" for n in numbers] if self._is_dated else [f".{n}" for n in reversed(numbers)]
        return [*(Path(f"{self._path}{name}") for name in names), self._path]

    def _copy(self) -> None:
        shutil.copyfile(self._path, self._retired())
        os.truncate(self._path, 0)

    def _rename(self) -> None:
        self._path.rename(self._retired())
        self._path.touch()
        time.sleep(self._chance.random() * 0.005)
        self._server.reopens.set()

    def _retired(self) -> Path:
        self.rotations += 1
        if self._is_dated:
            return Path(f"{self._path}-{20260101 + self.rotations}")
        for number in range(self.rotations, 1, -1):
            os.rename(f"{self._path}.{number - 1}", f"{self._path}.{number}")
        return Path(f"{self._path}.1")


def storm(kind: str, seed: int, requests: int, folder: Path) -> Storm:
    """Have a log of ``requests`` rotated while it is followed."""
    chance, log, told = random.Random(seed), folder / "server.log", folder / "stream.jsonl"
    log.write_text(HEAD)
    server = Server(log, chance)
    rotator = Rotator(log, server, kind, seed)
    done = threading.Event()
    rotating = threading.Thread(target=rotator.rotate_until, args=(done,))
    with told.open("wb") as out:
        follower = subprocess.Popen(ours("analyze", "--follow", log, "-f", "jsonl"), stdout=out, stderr=subprocess.PIPE)
    wait_until_it_reads(told)
    rotating.start()
    server.write(requests)
    done.set()
    rotating.join()
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=PATIENCE)
    if follower.returncode != 130:
        raise SystemExit(f"the follower ended with {follower.returncode}: {said!r}")
    found = Counter(reported(told).values())
    left = complete(rotator.files(), requests)
    lost, twice = left - set(found), sum(count > 1 for count in found.values())
    return Storm(kind, seed, rotator.rotations, requests, len(left), len(lost), twice)


def wait_until_it_reads(told: Path) -> None:
    """Wait until the follower has read the first lines; files that were rotated before are not asked for."""
    end = time.monotonic() + PATIENCE
    while b'"message":"listening"' not in told.read_bytes():
        if time.monotonic() > end:
            raise SystemExit("the follower reads nothing")
        time.sleep(0.01)


def reported(told: Path) -> dict[int, int]:
    """The task of every request of the stream of which all is known, by its index."""
    lines = [json.loads(line) for line in told.read_bytes().splitlines()]
    return {line["index"]: line["task"] for line in lines if line["type"] == "request" and is_whole(line)}


def is_whole(request: dict[str, Any]) -> bool:
    """Whether it has what its lines show."""
    return request["prompt_tokens"] == request["processed_tokens"] == TOKENS


def complete(files: list[Path], requests: int) -> set[int]:
    """Requests of which all lines are in these files, whole or torn by a cut: at the end of one and in the next."""
    texts = [path.read_text() for path in files]
    lines = {line for text in ("".join(texts), *texts) for line in text.split("\n")}
    turns = (TURN.format(task=task, tokens=TOKENS, similarity="", diff="") for task in range(requests))
    return {task for task, turn in enumerate(turns) if lines.issuperset(turn.split("\n"))}


def storms(count: int, requests: int, seed: int) -> Iterator[Storm]:
    """Storms of both kinds in turns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have its background jobs ignore it
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="cachedoctor-rotations-") as folder:
            yield storm(KINDS[number % len(KINDS)], seed + number, requests, Path(folder))


def rows(plan: Plan) -> Iterator[Row]:
    """The storms as rows of the table of all measurements, one for each kind."""
    count, requests = QUICK if plan.is_quick else (STORMS, REQUESTS)
    found = list(storms(count, requests, SEED))
    for kind in KINDS:
        same = [one for one in found if one.kind == kind]
        left, lost = sum(one.left for one in same), sum(one.lost for one in same)
        case = f"{len(same)} storms by {kind}, {sum(one.rotations for one in same):,} rotations"
        measured = f"{lost} of {left:,} requests lost, {sum(one.twice for one in same)} read twice"
        yield Row("rotations", case, None, measured, lost / max(left, 1), "lost to left by the rotator", 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storms", type=int, default=STORMS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=SEED)
    a = parser.parse_args()
    print(f"{'kind':8}{'seed':>6}" + "".join(f"{name:>11}" for name in Storm._fields[2:]))
    bad = 0
    for one in storms(a.storms, a.requests, a.seed):
        print(f"{one.kind:8}{one.seed:6}" + "".join(f"{number:11,}" for number in one[2:]), flush=True)
        bad += one.lost + one.twice
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
