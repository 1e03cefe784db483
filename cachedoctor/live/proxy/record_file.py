"""The file of records: JSON lines, whole or not there at all. Knows files; knows no request."""

from __future__ import annotations

import contextlib
import os
import stat

from cachedoctor.model import CacheDoctorError

MARK = b'{"recorder":"cachedoctor proxy"'
"""How every record begins."""
_NEW = "--record names a new file"


class RecordFile:
    """Appends records to a file that only its owner may read; puts it aside, as ``FILE.1``, when it is too long."""

    def __init__(self, path: str, most: int) -> None:
        """Open it; what an earlier run wrote stays. Raises CacheDoctorError where it cannot be used."""
        self._path, self._most = path, most
        self._failed = False
        try:
            self._file = _opened(path)
            self._mend()
            self._spare_aside()
            os.fchmod(self._file, 0o600)
        except OSError as error:
            raise CacheDoctorError(
                f"{path}: cannot be written: {error.strerror}", "--record names another file"
            ) from error

    def add(self, record: bytes) -> str:
        """Append a record, without its line end; gives what befell it in words, empty where all is well.

        A record that does not fit on the disk is not there at all; the next one is tried again.
        """
        line = record + b"\n"
        if len(line) > self._most:
            return f"a record of {len(line):,} bytes is longer than --record-size and was left out"
        try:
            if os.fstat(self._file).st_size + len(line) > self._most:
                self._turn()
            self._append(line)
        except OSError as error:
            word = "" if self._failed else f"{self._path}: cannot be written: {error.strerror}; requests pass on"
            self._failed = True
            return word
        back, self._failed = self._failed, False
        return f"{self._path}: is written again; records in between are missing" if back else ""

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except BaseException:
            os.ftruncate(self._file, before)
            raise

    def _turn(self) -> None:
        os.replace(self._path, f"{self._path}.1")
        old, self._file = self._file, _opened(self._path)  # a number that is closed may soon name another file
        os.close(old)

    def _spare_aside(self) -> None:
        """Refuse where the file that would be replaced one day is somebody else's."""
        aside = f"{self._path}.1"
        if not os.path.isfile(aside):
            return
        with open(aside, "rb") as file:
            if file.read(len(MARK)) not in (MARK, b""):
                raise CacheDoctorError(f"{aside}: holds something else, and would be replaced", _NEW)

    def _mend(self) -> None:
        """Refuse a file that is no record; drop half a line at the end of one, which a crash of the machine leaves."""
        size = os.fstat(self._file).st_size
        if not size:
            return
        if os.pread(self._file, len(MARK), 0) != MARK:
            raise CacheDoctorError(f"{self._path}: holds something else than records of a proxy", _NEW)
        end = size
        while end:
            start = max(0, end - (1 << 16))
            at = os.pread(self._file, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._file, end)


def _opened(path: str) -> int:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is no file")
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise OSError(0, "another proxy writes it") from error
    except OSError:
        os.close(file)
        raise
    return file
