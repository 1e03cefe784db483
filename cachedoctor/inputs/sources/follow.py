"""A log file that grows, is truncated and is rotated while it is read."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from io import FileIO

from cachedoctor.inputs.sources import unpack
from cachedoctor.inputs.sources.base import IDLE_SECONDS, READ_SIZE, SourceError
from cachedoctor.inputs.sources.file import open_log, read_some
from cachedoctor.inputs.sources.generations import Generation, Generations, Key, close, key_of, read_at
from cachedoctor.inputs.sources.stdin import begins_a_line
from cachedoctor.inputs.sources.unpack import utf8

POLL_SECONDS = 0.05
"""Seconds between two polls: twenty a second cost a few thousandths of a core."""

_TAIL = 64 * 1024
"""Bytes remembered of what was read: they distinguish a copy of the file from other files."""
_COARSE = 0.1
"""Seconds after which a change in a folder is visible in its mtime, whatever the resolution of the system clock."""
_LAST = 8 * 1024 * 1024
"""Bytes still read after following was asked to stop: far more than a server writes between two polls. A user who stops
following does not wait until a long log is read to its current end."""
_CHECKED = 1024
"""Bytes re-read at every poll: if they changed, the file was truncated and has grown again."""


def _never() -> bool:
    return False


class FollowSource:
    """The file at ``path`` from its beginning and everything that is written to that name later, like ``tail -F``.

    ``poll`` is the pause in seconds between two looks at a silent file. When ``stop`` turns true, what is there is
    still read (``_LAST`` bytes at most), the copies of what was cut away included, then ``chunks`` ends. Rotations that
    happen between two looks are found by their names (``order.rotations``), by rename or by copy. What nobody can read
    any more at the next look is lost: bytes that were cut away without a copy, and a file that came and went, or was
    compressed, within one pause.
    """

    def __init__(
        self, path: str, poll: float = POLL_SECONDS, stop: Callable[[], bool] = _never, *, waits: bool = True
    ) -> None:
        """``waits``: pauses by itself; else each poll that found nothing yields ``b""``, and the caller pauses."""
        self.path = path
        self._poll = poll
        self._stop = stop
        self._waits = waits

    def chunks(self) -> Iterator[bytes]:
        """Yield the UTF-8 bytes as they are written, and ``b""`` once when none came for ``IDLE_SECONDS``.

        An unfinished last line is ended with a newline before the content of the next file. Where a log was
        copied and cut, only when what follows begins a line: it may be the rest of one that was being written.
        Raises ``SourceError`` when there is no such file at the start, or when it cannot be read or followed.
        """
        return (chunk for _, chunk in self.pieces())

    def pieces(self) -> Iterator[tuple[int | None, bytes]]:
        """Yield the same, each chunk with the number of its file, from 0; None with a newline that no file has.

        The content of a copy of a truncated file belongs to that file.
        """
        number = -1
        queue = [_open_regular(self.path)]
        generations, end = Generations(self.path), _End(self._stop)
        generations.begin(key_of(os.fstat(queue[0].fileno())))
        is_copied = False
        torn = b""  # what was read last, when its last line has no end
        try:
            while queue:
                turn, number = _Turn(self.path, queue[0], generations), number + 1
                last = b"\n"
                # Each file has its own byte order mark.
                poll = self._poll if self._waits else None
                for chunk in utf8(turn.followed(poll, end) if len(queue) == 1 else turn.rest()):
                    if chunk and torn:
                        if begins_a_line(chunk, torn):
                            yield None, b"\n"
                        torn = b""
                    last = chunk[-1:] or last
                    yield number, chunk
                    if end.is_due(chunk):
                        return
                done = queue.pop(0)
                queue += turn.successors
                if turn.successors:
                    is_copied = turn.is_copied
                if done not in queue:
                    done.close()
                torn = turn.tail if last != b"\n" else torn
                if torn and queue and not is_copied:
                    yield None, b"\n"
                    torn = b""
        finally:
            close(queue)


class _End:
    """Decides when following ends."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._left: int | None = None
        """Bytes that are still read; None as long as following continues."""

    def __call__(self) -> bool:
        """Whether it ends where nothing more is written."""
        if self._left is None and self._stop():
            self._left = _LAST
        return self._left is not None

    def is_due(self, chunk: bytes) -> bool:
        """Whether this chunk was the last one."""
        if self._left is None:
            return False
        self._left -= len(chunk)
        return self._left < 0


class _Turn:
    """One file from its first byte until it is truncated, replaced or no longer wanted."""

    def __init__(self, path: str, file: FileIO, generations: Generations) -> None:
        self._path = path
        self._file = file
        self._key = key_of(os.fstat(file.fileno()))
        self._generations = generations
        self._done = 0
        self.tail = b""
        """What was read last, up to here."""
        self._looked: tuple[int, bool, bool] | None = None
        self.successors: list[FileIO] = []
        """What to read next: the same file again if it was truncated; empty if following ends."""
        self.is_copied = False
        """Whether it is rotated by copying: its successors are copies, then the file itself, which continues after
        them."""

    def rest(self) -> Iterator[bytes]:
        """Yield what the file contains; no process writes to it any more."""
        while data := self._read():
            yield data

    def followed(self, poll: float | None, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield what the file holds and what is appended to it, until ``stop`` or until it has successors.

        ``poll`` in seconds; with None no look is followed by a pause, and each in vain yields ``b""``.
        """
        heard: float | None = time.monotonic()
        while True:
            # Asked before the read: what is written before stop turns true is never missed.
            stopping, first = stop(), not self.tail
            # Less than a line is too little to tell a file that begins again by; after a silence it has to do.
            data = self._read(b"" if stopping or heard is None else b"\n")
            if data:
                if first and self._was_preceded():
                    if self.successors:
                        return
                    continue
                yield data
                heard = time.monotonic()
                continue
            if self._may_have_successors(data is None):
                yield from self._handed_over(data is None)
            if self.successors or stopping:
                return
            if heard is not None and time.monotonic() - heard >= IDLE_SECONDS:
                heard = None
                if poll is not None:
                    yield b""
            if poll is None:
                yield b""
            else:
                time.sleep(poll)

    def _read(self, first: bytes = b"") -> bytes | None:
        """Read on; None if what had been read is gone because the file was truncated. The first bytes must hold
        ``first``."""
        if not self.tail:
            return self._read_first(first)
        checked = self.tail[-_CHECKED:]
        self._file.seek(self._done - len(checked))
        data = read_some(self._path, self._file, self._done)
        if not data.startswith(checked):
            return None
        return self._taken(data[len(checked) :])

    def _read_first(self, wanted: bytes) -> bytes:
        # A server that does not append continues at its old place when its log is cut: the file begins with a hole.
        self._done = _hole(self._file)
        self._file.seek(self._done)
        while data := read_some(self._path, self._file, self._done):
            text = data.lstrip(b"\0")
            self._done += len(data) - len(text)
            if text:
                if unpack.format_of(text):
                    raise SourceError(
                        f"{self._path}: is compressed and cannot be followed", "read the file without --follow"
                    )
                return self._taken(text) if wanted in text else b""
        return b""

    def _taken(self, data: bytes) -> bytes:
        self._done += len(data)
        self.tail = (self.tail + data)[-_TAIL:]
        return data

    def _may_have_successors(self, cut: bool) -> bool:
        """Whether listing the folder is worthwhile; for a file at rest only its name is checked."""
        named, is_ours = _status(self._path), _is_at(self._path, self._key)
        if is_ours and self.tail and not cut:
            return False
        # As long as the new file is empty, the server may still be writing to the old one (it has not reopened its
        # log yet): then only another rotation, which changes the folder, can bring something. So it is with a file of
        # which nothing was read: it may have been copied and cut since the last look.
        if named is not None and named.st_size and (cut or not is_ours):
            return True
        folder = _status(os.path.dirname(self._path) or ".")
        if folder is None:
            return False
        # Its time is coarse: what changes right after a look may leave it as it was.
        rests = time.time() - folder.st_mtime > _COARSE
        before, self._looked = self._looked, (folder.st_mtime_ns, rests, cut)
        return self._looked != before

    def _handed_over(self, cut: bool) -> Iterator[bytes]:
        """Find the successors, if any, and yield what is left of this file or, if it was truncated, of its copy."""
        found = self._generations.opened() or []
        data: bytes | None = b""
        # The last lines may have come between our last read and the moment the file was replaced.
        while self.tail and not cut and (data := self._read()):
            yield data
        if found and (cut or data is not None):  # else it was cut while we looked: the next look finds everything
            # Of a file of which nothing was read, copies may have been made already.
            ours = (bool(self.tail) and (self._is_copy(g) if cut else g.key == self._key) for g in found)
            at = next((i for i, is_ours in enumerate(ours) if is_ours), -1)
            later = [g for g in found[at + 1 :] if self._generations.unseen(g) or g.key == self._key]
            if not cut and not self.tail and [g.key for g in later] == [self._key]:
                later = []  # it has less than a line so far, and nothing came before it
            self.successors = [g.file for g in later]
            if (later or (cut and at >= 0)) and all(g.key != self._key for g in later):
                self._place_in(self.successors, cut)
            if cut and at >= 0:
                yield from self._copied(found[at])
            if self.successors:
                last = key_of(os.fstat(self.successors[-1].fileno()))
                self.is_copied = last == self._key and (at >= 0 or not self.tail)
                self._generations.learn(found)
        close(g.file for g in found if g.file not in self.successors)

    def _place_in(self, successors: list[FileIO], cut: bool) -> None:
        """Insert this file, which is empty, after its copies; a deleted one comes first, because others replaced it."""
        if cut and not os.fstat(self._file.fileno()).st_nlink:
            successors.insert(0, self._file)
        elif cut or (not self.tail and _is_at(self._path, self._key)):
            successors.append(self._file)

    def _was_preceded(self) -> bool:
        """Whether the file was copied and truncated before its first bytes were read: these then have to wait."""
        found = self._generations.opened()
        if found is None or read_at(self._file, self._done - len(self.tail), len(self.tail)) != self.tail:
            self._done, self.tail = 0, b""  # cut once more, just now, or names change: it begins again
            close(g.file for g in found or ())
            return True
        at = next((i for i, g in enumerate(found) if g.key == self._key), 0)
        missed = [g.file for g in found[:at] if self._generations.unseen(g)]
        if missed:
            self._generations.learn(found[:at])
            self.successors, self.is_copied = [*missed, self._file], True
        close(g.file for g in found if g.file not in missed)
        return bool(missed)

    def _is_copy(self, other: Generation) -> bool:
        """Whether it is new and holds what we read last at the same place."""
        return self._generations.unseen(other) and other.key != self._key and other.holds(self.tail, self._done)

    def _copied(self, copy: Generation) -> Iterator[bytes]:
        while data := read_at(copy.file, self._done, READ_SIZE):
            yield self._taken(data)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _is_at(path: str, key: Key) -> bool:
    status = _status(path)
    return status is not None and key_of(status) == key


def _hole(file: FileIO) -> int:
    """Offset at which the bytes of a file begin."""
    try:
        return os.lseek(file.fileno(), 0, os.SEEK_DATA)
    except (OSError, AttributeError):  # it is empty; or the system knows no holes
        return 0


def _open_regular(path: str) -> FileIO:
    # Looked at before it is opened: opening a named pipe would wait for a writer.
    if os.path.exists(path) and not (os.path.isdir(path) or stat.S_ISREG(os.stat(path).st_mode)):
        raise SourceError(f"{path}: is not a regular file and cannot be followed", "read the file without --follow")
    return open_log(path)
