"""The standard input, read as it arrives. Knows its file descriptor; knows no path and no line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from cachedoctor.sources.arrivals import arrivals
from cachedoctor.sources.base import SourceError, Told, unheard
from cachedoctor.sources.byte_order import utf8
from cachedoctor.sources.unpack import MAX_BYTES, unpacked

_HINT = "pipe the log into this command, or give its file name"


class StdinSource:
    """What comes through the file descriptor ``fd``, compressed or not; it is not closed.

    ``max_bytes`` limits what compressed input may unpack to; ``told`` hears of bytes that were read.
    """

    def __init__(self, fd: int = 0, max_bytes: int = MAX_BYTES, told: Told = unheard) -> None:
        self._told = told
        self.path = "-"
        self._fd = fd
        self._max_bytes = max_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the UTF-8 bytes at once when they arrive, and ``b""`` when none came for ``IDLE_SECONDS``.

        Where pipes cannot be waited for (Windows) no idle chunk comes, nor from a terminal: who pastes takes a while.
        Ends when the writer closes its end.
        Raises ``SourceError`` when the descriptor cannot be read or its data cannot be unpacked.
        """
        return utf8(unpacked(self.path, self._arrivals(), self._max_bytes))

    def _arrivals(self) -> Iterator[bytes]:
        if self._fd == 0 and sys.stdin is None:
            # The next file that is opened gets the number of a closed standard input: our own output, maybe.
            raise SourceError(f"{self.path}: the standard input is closed", _HINT)
        done = 0
        try:
            typed = os.isatty(self._fd)
            for data in arrivals(self._fd):
                if typed and not data:
                    continue
                done += len(data)
                self._told(len(data))
                yield data
        except OSError as fault:
            what = f"{self.path}: the standard input cannot be read ({fault.strerror}, after {done:,} bytes)"
            raise SourceError(what, _HINT) from fault
