"""Bytes of a pipe, a socket or a terminal, as they arrive. Knows file descriptors; knows no path and no line."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from cachedoctor.sources.base import IDLE_SECONDS, READ_SIZE


def arrivals(fd: int) -> Iterator[bytes]:
    """Yield bytes at once when they arrive, and ``b""`` when a writer has been silent for ``IDLE_SECONDS``.

    Of one silence it is said once. Where pipes cannot be waited for (Windows) it is never said. Ends when the last
    writer closes its end. Raises ``OSError`` when the descriptor cannot be read.
    """
    silent = False
    while True:
        if not _ready(fd, None if silent else IDLE_SECONDS):
            silent = True
            yield b""
            continue
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:  # whoever made the pipe non-blocking may have taken the bytes, too
            continue
        if not data:
            return
        silent = False
        yield data


def _ready(fd: int, seconds: float | None) -> bool:
    # Windows can select on sockets only; a read that blocks is all that is left there.
    return os.name != "posix" or bool(select.select([fd], [], [], seconds)[0])
