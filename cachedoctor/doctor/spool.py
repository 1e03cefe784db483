"""Finished requests wait here, on disk once they are many, in the order in which they started.

Knows bytes and numbers. Knows no field of a request.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

_BATCH = 2048
"""Requests gathered before they are written out."""
MAX_WAITING = 4096
"""Requests that may wait for one that started before them."""


class Spool:
    """Takes requests in any order near the right one, gives them in the order of their numbers."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._ready: list[bytes] = []
        self._waiting: dict[int, bytes] = {}
        self._next = 0

    @property
    def overdue(self) -> int | None:
        """Number of the request that too many others wait for, or None."""
        return self._next if len(self._waiting) > MAX_WAITING else None

    def add(self, number: int, line: bytes) -> None:
        """Take the request with this number (0, 1, 2 ... without gaps)."""
        if number != self._next:
            self._waiting[number] = line
            return
        self._ready.append(line)
        self._next += 1
        while self._waiting and (late := self._waiting.pop(self._next, None)) is not None:
            self._ready.append(late)
            self._next += 1
        if len(self._ready) > _BATCH:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the report
            last = self._ready.pop()  # stays, so that what is on disk always ends with a comma
            self._file.write(b",\n".join(self._ready) + b",\n")
            self._ready = [last]

    def copy_to(self, out: IO[bytes]) -> None:
        """Write all requests taken so far, one a line, with a comma between them as in a JSON array."""
        if self._file is not None:
            self._file.seek(0)
            shutil.copyfileobj(self._file, out, 1 << 20)
            self._file.seek(0, 2)
        rest = [*self._ready, *(self._waiting[number] for number in sorted(self._waiting))]
        out.write(b",\n".join(rest))

    def lines(self) -> Iterator[bytes]:
        """Yield every request taken so far; numbers still missing are skipped."""
        if self._file is not None:
            self._file.seek(0)
            for line in self._file:
                yield line[:-2]
            self._file.seek(0, 2)
        yield from self._ready
        for number in sorted(self._waiting):
            yield self._waiting[number]
