"""Standard input and other live streams, read as bytes arrive."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator

from cachedoctor.inputs.sources.base import IDLE_SECONDS, READ_SIZE, Source, SourceError, Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES, unpacked, utf8
from cachedoctor.knowledge.late_patterns import late


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
            raise SourceError(f"{self.path}: standard input is closed", _HINT)
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
            what = f"{self.path}: standard input cannot be read ({fault.strerror}, after {done:,} bytes)"
            raise SourceError(what, _HINT) from fault


_FIRST_WORD = late(rb"[ \t]*\S{1,24}")
_NUMBER = late(rb"\d+")


def begins_a_line(text: bytes, before: bytes) -> bool:
    """Whether ``text`` begins with a word that began a line of ``before``, numbers aside; else it is a line's rest."""
    return _beginning(text) in {_beginning(line) for line in before.split(b"\n")}


def _beginning(line: bytes) -> bytes:
    word = _FIRST_WORD.match(line)
    return _NUMBER.sub(b"0", word[0]) if word else b""


class BegunSource:
    """``source``, once: what was checked comes first when it is read."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self._chunks = source.chunks()
        self._seen: list[bytes] = []
        self._fault: SourceError | None = None

    def head(self, most: int, waiting: Callable[[], None]) -> bytes:
        """Wait for the first line, and give it with what came at once, ``most`` bytes at most; less at the end.

        ``waiting`` is called when nothing comes for a while.
        """
        head = b""
        try:
            while b"\n" not in head and len(head) < most and (chunk := next(self._chunks, None)) is not None:
                self._seen.append(chunk)
                head += chunk
                if not chunk:
                    waiting()
        except SourceError as fault:  # whoever reads it says so
            self._fault = fault
        return head[:most]

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as the source does, those that were checked among them; raises what it raises."""
        yield from self._seen
        self._seen.clear()
        if self._fault is not None:
            raise self._fault
        yield from self._chunks
