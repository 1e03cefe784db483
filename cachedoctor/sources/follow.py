"""A log file that grows, is cut and is rotated while it is read. Knows paths; knows no line and no compression."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from io import FileIO

from cachedoctor.sources import codec
from cachedoctor.sources.base import IDLE_SECONDS, SourceError
from cachedoctor.sources.file import open_log, read_some
from cachedoctor.sources.text import utf8


def _never() -> bool:
    return False


class FollowSource:
    """The file at ``path`` from its beginning and everything that is written to that name later, like ``tail -F``.

    ``poll`` is the pause in seconds between two looks at a silent file. When ``stop`` turns true, what is there is
    still read, then ``chunks`` ends. Two changes cannot be seen from outside and lose lines: a file that is cut and
    outgrows its old length within one pause, and two rotations within one pause.
    """

    def __init__(self, path: str, poll: float = 0.1, stop: Callable[[], bool] = _never) -> None:
        self.path = path
        self._poll = poll
        self._stop = stop

    def chunks(self) -> Iterator[bytes]:
        """Yield the UTF-8 bytes as they are written, and ``b""`` when none came for ``IDLE_SECONDS``.

        An unfinished last line is ended with a newline before the content of the next file.
        Raises ``SourceError`` when there is no such file at the start, or when it cannot be read or followed.
        """
        file = _open_regular(self.path)
        try:
            while True:
                turn = _Turn(self.path, file, self._poll, self._stop)
                last = b"\n"
                # Each file has its own byte order mark.
                for chunk in utf8(turn.chunks()):
                    last = chunk[-1:] or last
                    yield chunk
                if turn.successor is None:
                    return
                if turn.successor is not file:
                    file.close()
                    file = turn.successor
                if last != b"\n":
                    yield b"\n"
        finally:
            file.close()


class _Turn:
    """One file from its first byte until it is cut, replaced or no longer wanted."""

    def __init__(self, path: str, file: FileIO, poll: float, stop: Callable[[], bool]) -> None:
        self._path = path
        self._file = file
        self._poll = poll
        self._stop = stop
        self._done = 0
        self.successor: FileIO | None = None
        """What to read next: the same file when it was cut; None when the following ends."""

    def chunks(self) -> Iterator[bytes]:
        heard = time.monotonic()
        while True:
            # Asked before the read: what is written before stop turns true is never missed.
            stopping = self._stop()
            if data := self._read():
                yield data
                heard = time.monotonic()
                continue
            if self._was_cut():
                self._file.seek(0)
                self.successor = self._file
                return
            if self._was_replaced():
                # The last lines may have come between our last read and the moment the file was replaced.
                while data := self._read():
                    yield data
                self.successor = self._reopened()
            if self.successor is not None or stopping:
                return
            if time.monotonic() - heard >= IDLE_SECONDS:
                yield b""
                heard = time.monotonic()
            time.sleep(self._poll)

    def _read(self) -> bytes:
        data = read_some(self._path, self._file, self._done)
        if not self._done and codec.format_of(data):
            raise SourceError(f"{self._path}: is compressed and cannot be followed", "read it without following")
        self._done += len(data)
        return data

    def _was_cut(self) -> bool:
        return os.fstat(self._file.fileno()).st_size < self._done

    def _was_replaced(self) -> bool:
        try:
            named = os.stat(self._path)
        except OSError:
            # Deleted or moved away; it can still grow, and its name can come back.
            return False
        ours = os.fstat(self._file.fileno())
        # Our open file keeps its inode from being given to another one. As long as the new file is empty
        # the server may still be writing to the old one (it has not reopened its log yet).
        return named.st_size > 0 and (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino)

    def _reopened(self) -> FileIO | None:
        return open_log(self._path) if os.path.exists(self._path) else None


def _open_regular(path: str) -> FileIO:
    # Looked at before it is opened: opening a named pipe would wait for a writer.
    if os.path.exists(path) and not (os.path.isdir(path) or stat.S_ISREG(os.stat(path).st_mode)):
        raise SourceError(f"{path}: is not a regular file and cannot be followed", "read it without following")
    return open_log(path)
