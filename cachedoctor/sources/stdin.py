"""The standard input, read as it arrives. Knows file descriptors; knows no path and no line."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from cachedoctor.sources.base import IDLE_SECONDS, READ_SIZE, SourceError
from cachedoctor.sources.text import utf8
from cachedoctor.sources.unpack import MAX_BYTES, unpacked


class StdinSource:
    """What comes through the file descriptor ``fd``, compressed or not; it is not closed.

    ``max_bytes`` limits what compressed input may unpack to.
    """

    def __init__(self, fd: int = 0, max_bytes: int = MAX_BYTES) -> None:
        self.path = "-"
        self._fd = fd
        self._max_bytes = max_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the UTF-8 bytes at once when they arrive, and ``b""`` when none came for ``IDLE_SECONDS``.

        Where pipes cannot be waited for (Windows) no idle chunk comes. Ends when the writer closes its end.
        Raises ``SourceError`` when the descriptor cannot be read or its data cannot be unpacked.
        """
        return utf8(unpacked(self.path, self._arrivals(), self._max_bytes))

    def _arrivals(self) -> Iterator[bytes]:
        done = 0
        while True:
            try:
                ready = _ready(self._fd)
                data = os.read(self._fd, READ_SIZE) if ready else b""
            except OSError as fault:
                what = f"{self.path}: the standard input cannot be read ({fault.strerror}, after {done:,} bytes)"
                raise SourceError(what, "pipe the log into this command, or give its file name") from fault
            if ready and not data:
                return
            done += len(data)
            yield data


def _ready(fd: int) -> bool:
    # Windows can select on sockets only; a read that blocks is all that is left there.
    return os.name != "posix" or bool(select.select([fd], [], [], IDLE_SECONDS)[0])
