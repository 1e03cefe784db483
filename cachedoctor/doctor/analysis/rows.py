"""Encoded rows wait here, on disk once they are many, in the order in which they came."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

from cachedoctor.model import CacheDoctorError

_IN_MEMORY = 1 << 20
"""Bytes from which on they lie on disk."""
_SESSION = b'{"session":'
"""Every row begins with its session."""


class RowSpool:
    """Takes rows of samples or batches, one JSON object each."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # lives as long as the report
        self._fault: OSError | None = None

    def add(self, row: bytes) -> None:
        """Take a row."""
        try:
            self._file.write(row + b"\n")
        except OSError as fault:
            self._fault = self._fault or fault

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when rows were lost because the disk took no more."""
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
            session, rest = row.removeprefix(_SESSION).split(b",", 1)
            self.add(b"%b%d,%b" % (_SESSION, int(session) + sessions, rest))
