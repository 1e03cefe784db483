"""Encoded rows and finished requests, kept on disk once they are many, in the order of their start."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from cachedoctor.model import CacheDoctorError, Judged, RequestRow, read_rows

_IN_MEMORY = 1 << 20
"""Bytes from which on the rows are kept on disk."""
_ROWS_SESSION = b'{"session":'
"""Every row begins with its session."""


class RowSpool:
    """Takes rows of samples or batches, one JSON object each."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # lives as long as the report
        self._fault: OSError | None = None
        self._gathered: list[bytes] = []

    def add(self, row: bytes) -> None:
        """Take a row."""
        self._gathered.append(row)
        if len(self._gathered) >= _BATCH:
            self._write_out()

    def _write_out(self) -> None:
        try:
            self._file.write(b"".join([row + b"\n" for row in self._gathered]))
        except OSError as fault:
            self._fault = self._fault or fault
        self._gathered.clear()

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when rows were lost because the disk took no more."""
        self._write_out()
        if self._fault is not None:
            what = f"the list of samples cannot be kept on disk ({self._fault.strerror or self._fault})"
            raise CacheDoctorError(what, "free some space or set TMPDIR to another folder") from self._fault

    def lines(self) -> Iterator[bytes]:
        """Yield every row taken so far, without newline."""
        self.check()
        self._file.seek(0)
        try:
            for line in self._file:
                yield line[:-1]
        finally:
            self._file.seek(0, 2)

    def take_over(self, rows: Iterable[bytes], sessions: int) -> None:
        """Take the rows of a later part of the logs; ``sessions``: how many came before that part."""
        for row in rows:
            session, rest = row.removeprefix(_ROWS_SESSION).split(b",", 1)
            self.add(b"%b%d,%b" % (_ROWS_SESSION, int(session) + sessions, rest))


_BLOCK = 1 << 20
_INDEX, _SPOOL_SESSION = b'{"index":', b'"session":'
"""Every encoded request begins with these two fields."""
_BATCH = 2048
"""Encoded requests, or rows, gathered before they are written out."""
_TOGETHER = 64
"""Requests that are encoded one after the other."""
OPEN = 80
"""Requests that can still change; more than a conversation can look back on. Each of them is held in memory."""
MAX_WAITING = 4096
"""Requests that may wait for one that started before them."""


class Spool:
    """Takes requests in any order near the right one, gives them in the order of their numbers."""

    def __init__(self, encode: Callable[[Judged], bytes] | None) -> None:
        """``encode``: makes the bytes of a request; without it no request is kept."""
        self._encode = encode
        self._file: IO[bytes] | None = None
        self._ready: list[bytes] = []
        self._open: deque[Judged] = deque()
        self._waiting: dict[int, Judged] = {}
        self._next = 0
        self._fault: OSError | None = None

    @property
    def overdue(self) -> int | None:
        """Number of the request that too many others wait for, or None."""
        return self._next if len(self._waiting) > MAX_WAITING else None

    def take(self, judged: Iterable[Judged]) -> None:
        """Take requests (their numbers are 0, 1, 2 ... without gaps).

        One that is judged again takes the place of what it was, unless that no longer changes.
        """
        kept, waiting, encode = self._open, self._waiting, self._encode
        for one in judged:
            number = one.request.index
            if number == self._next:
                kept.append(one)
                self._next = number + 1
                while waiting and (late := waiting.pop(self._next, None)) is not None:
                    kept.append(late)
                    self._next += 1
            elif not one.request.revision or number in waiting:
                waiting[number] = one
            elif 0 <= (at := number - self._next + len(kept)) < len(kept):
                kept[at] = one
        if encode is None:
            kept.clear()
            return
        while len(kept) >= OPEN + _TOGETHER:  # the first of them no longer change
            self._settle([kept.popleft() for _ in range(_TOGETHER)], encode)

    def _settle(self, settled: list[Judged], encode: Callable[[Judged], bytes]) -> None:
        """Keep requests that no longer change."""
        self._ready += map(encode, settled)
        if len(self._ready) > _BATCH:
            self._write()

    def _write(self) -> None:
        if len(self._ready) < 2:
            return
        last = self._ready.pop()  # stays, so that what is on disk always ends with a comma
        try:
            self._store(b",\n".join(self._ready) + b",\n")
        except OSError as fault:
            self._fault = fault
        self._ready = [last]

    def _store(self, lines: bytes) -> None:
        if self._fault is not None:
            return  # without the requests before them they are useless
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the report
        self._file.write(lines)
        self._file.flush()

    def take_over(self, path: str, count: int, sessions: int) -> None:
        """Take ``count`` requests of a later part from the file at ``path``, where they are numbered from 0.

        ``sessions``: how many came before that part. All that was added before is final.
        """
        first, self._next = self._next, self._next + count
        self._ready += self._encoded()
        self._open.clear()
        with open(path, "rb") as file:
            while lines := file.readlines(_BLOCK):
                self._ready += [_renumbered(line, first, sessions) for line in lines]
                self._write()

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when requests were lost because the disk took no more."""
        if self._fault is not None:
            what = f"the list of requests cannot be kept on disk ({self._fault.strerror or self._fault})"
            hint = "free some space or set TMPDIR to another folder; the analyze text report does not need the list"
            raise CacheDoctorError(what, hint) from self._fault

    def copy_to(self, out: IO[bytes]) -> None:
        """Write all requests taken so far, one a line, with a comma between them as in a JSON array.

        Raises ``CacheDoctorError`` when some were lost; so does ``lines``.
        """
        self.check()
        if self._file is not None:
            self._file.seek(0)
            shutil.copyfileobj(self._file, out, 1 << 20)
            self._file.seek(0, 2)
        out.write(b",\n".join([*self._ready, *self._encoded()]))

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield every request taken so far."""
        return read_rows(self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield every request taken so far; numbers still missing are skipped."""
        self.check()
        if self._file is not None:
            self._file.seek(0)
            for line in self._file:
                yield line[:-2]
            self._file.seek(0, 2)
        yield from self._ready
        yield from self._encoded()

    def _encoded(self) -> Iterator[bytes]:
        """Yield the requests that were not encoded yet, in order."""
        if self._encode is not None:
            yield from map(self._encode, self._open)
            for number in sorted(self._waiting):
                yield self._encode(self._waiting[number])


def _renumbered(line: bytes, requests: int, sessions: int) -> bytes:
    """Count the numbers at the beginning of an encoded request from those that came before its part."""
    index, session, rest = line.removesuffix(b"\n").removesuffix(b",").split(b",", 2)
    number, at = int(index[len(_INDEX) :]) + requests, int(session[len(_SPOOL_SESSION) :]) + sessions
    return b"%b%d,%b%d,%b" % (_INDEX, number, _SPOOL_SESSION, at, rest)
