"""A log file, or a span of one, read from its beginning to its end."""

from __future__ import annotations

import codecs
import os
import shlex
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from io import FileIO

import msgspec

from cachedoctor.inputs.sources import unpack
from cachedoctor.inputs.sources.base import READ_SIZE, FolderError, SourceError, Told, unheard
from cachedoctor.inputs.sources.stdin import arrivals
from cachedoctor.inputs.sources.unpack import MAX_BYTES, unpacked, utf8

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class FileSpan(msgspec.Struct, frozen=True):
    """Whole lines of a file: bytes from ``start`` up to ``end``, the first of them line ``line`` (1-based)."""

    start: int
    end: int
    line: int


class SpanSource:
    """The bytes of ``span`` in the file at ``path``."""

    def __init__(self, path: str, span: FileSpan) -> None:
        self.path = path
        self._span = span

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they are stored.

        Raises ``SourceError`` when they cannot be read, or are there no more.
        """
        with open_log(self.path) as file:
            file.seek(self._span.start)
            left = self._span.end - self._span.start
            while left:
                data = read_some(self.path, file, self._span.end - left)[:left]
                if not data:
                    raise SourceError(
                        f"{self.path}: became shorter while it was read", "read the file again with --jobs 1"
                    )
                left -= len(data)
                yield data


def plain_size(path: str) -> int:
    """Bytes of a regular file that is stored as plain UTF-8; 0 for anything else, which has no spans."""
    if path == "-" or is_stream(path):
        return 0
    try:
        with open_log(path) as file:
            head = file.read(READ_SIZE) or b""
            size = file.seek(0, 2)
    except (SourceError, OSError):
        return 0  # whoever reads it says why
    return 0 if unpack.format_of(head) or head.startswith(_MARKS) else size


class FileSource:
    """The file, named pipe or device at ``path``; gzip, xz, bzip2 and zstd are known by content, not by name.

    ``max_bytes`` limits what a compressed file may unpack to; ``told`` hears of bytes that were read.
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES, told: Told = unheard) -> None:
        self.path = path
        self._told = told
        self._max_bytes = max_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the unpacked UTF-8 bytes up to the end that the file has when it is reached.

        A pipe (also ``/dev/stdin``, or what ``<(command)`` becomes) is live: its bytes come as they arrive, and ``b""``
        when none came for ``IDLE_SECONDS``. The file is opened by the first step.
        Raises ``SourceError`` when it cannot be opened, read or unpacked.
        """
        with open_log(self.path) as file:
            yield from utf8(unpacked(self.path, _reads(self.path, file, self._told), self._max_bytes))


def open_log(path: str) -> FileIO:
    """Open ``path`` for plain unbuffered reads; raises ``SourceError`` with a hint when that fails."""
    # No mmap: the server may cut its log at any time, and touching a page that is gone kills the process.
    try:
        return FileIO(path, "r")
    except OSError as fault:
        if os.path.isdir(path):
            example = os.path.join(path, "server.log")
            raise FolderError(path, f"give the log file itself, e.g. {example}") from fault
        if isinstance(fault, FileNotFoundError):
            if path.startswith(("http://", "https://")):
                raise SourceError(f"{path}: is an address, not a log file", _beside(shlex.quote(path))) from fault
            raise SourceError(f"{path}: no such file", _nearest(path)) from fault
        if isinstance(fault, PermissionError):
            raise SourceError(
                f"{path}: permission denied", "run as a user who can read the file, or copy it"
            ) from fault
        raise SourceError(f"{path}: cannot be opened ({fault.strerror})", "give a file, or - to read a pipe") from fault


def _beside(url: str) -> str:
    return (
        f"test that server: cachedoctor probe {url}; watch its requests: cachedoctor proxy --upstream {url}; "
        f"read a log from there: curl {url} | cachedoctor analyze -"
    )


def _nearest(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return f"the folder {folder} cannot be listed: check the path"
    close = get_close_matches(name, names, n=1)
    return f"did you mean {os.path.join(folder, close[0])}?" if close else "check the path"


def _reads(path: str, file: FileIO, told: Told) -> Iterator[bytes]:
    done = 0
    if is_stream(path):
        try:
            for data in arrivals(file.fileno()):
                done += len(data)
                told(len(data))
                yield data
        except OSError as fault:
            raise _unreadable(path, fault, done) from fault
        return
    while data := read_some(path, file, done):
        done += len(data)
        told(len(data))
        yield data


def is_stream(path: str | int) -> bool:
    """Whether a path or file descriptor is a pipe, a socket or a terminal: bytes arrive when they are written."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def read_some(path: str, file: FileIO, done: int) -> bytes:
    """Read at most ``READ_SIZE`` bytes, empty at the end; ``done`` bytes came before.

    Raises ``SourceError`` when the system refuses.
    """
    try:
        return file.read(READ_SIZE)
    except OSError as fault:
        raise _unreadable(path, fault, done) from fault


def _unreadable(path: str, fault: OSError, done: int) -> SourceError:
    what = f"{path}: cannot be read further ({fault.strerror}, after {done:,} bytes)"
    return SourceError(what, "check the disk or the network share")
