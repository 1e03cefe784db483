"""A log that begins with its newest line is turned round, as Loki and the consoles of clouds give it.

Knows times of stored lines; any other log passes through from its first bytes on. One that is turned lies on the disk
where it is large, and is read from its end.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from cachedoctor.envelope import labels
from cachedoctor.envelope.clock import moment
from cachedoctor.knowledge.texts import sound_json

_LINES = 64
"""Lines that tell the order."""
_BYTES = 1 << 20
_IN_MEMORY = 32 << 20
_BLOCK = 1 << 20
_STRAY = 20
"""One pair in so many may be in the other order: clocks of several servers."""


class NewestFirst:
    """Feeds on the chunks of one input, gives those of a log in the order of time."""

    def __init__(self) -> None:
        self._held: bytearray | None = bytearray()
        self._spool: IO[bytes] | None = None

    @property
    def turned(self) -> bool:
        """Whether the newest line came first."""
        return self._spool is not None

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give those that need not wait for the end."""
        if self._held is None:
            if self._spool is None:
                return chunk
            self._spool.write(chunk)
            return b""
        self._held += chunk
        first = self._held.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] if len(self._held) < _BYTES else bytes(self._held[:1])
        if first and first not in b"{12":
            return self._decide(False)
        if len(self._held) < _BYTES and self._held.count(b"\n") <= _LINES:
            return b""
        return self._decide(_is_turned(bytes(self._held[:_BYTES])))

    def quiet(self) -> bytes:
        """The live input fell silent: give what was held to find out."""
        return b"" if self._held is None else self._decide(_is_turned(bytes(self._held)))

    def finish(self) -> Iterator[bytes]:
        """The input ended: give the rest, in pieces."""
        if self._held is not None:
            yield self._decide(_is_turned(bytes(self._held)))
        if self._spool is not None:
            with self._spool as spool:
                yield from _backwards(spool)

    def _decide(self, turned: bool) -> bytes:
        held, self._held = bytes(self._held or b""), None
        if not turned:
            return held
        self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # closed in finish
        self._spool.write(held)
        return b""


def _is_turned(begin: bytes) -> bool:
    lines = begin.split(b"\n", _LINES)[:_LINES]
    times = [time for line in lines if (time := _moment(line)) is not None]
    earlier = sum(b < a for a, b in itertools.pairwise(times))
    later = sum(b > a for a, b in itertools.pairwise(times))
    return earlier > later * _STRAY and times[-1] < times[0]


def _moment(line: bytes) -> int | float | None:
    if not line.startswith(b"{"):
        return moment(line[:40].partition(b" ")[0].decode("latin-1"))
    try:
        record = msgspec.json.decode(sound_json(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    found = labels.labels(record) if isinstance(record, dict) else {}
    return moment(found["time"].value) if "time" in found else None


def _backwards(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, the last one first."""
    at = file.seek(0, 2)
    pending: list[bytes] = []
    """Pieces of the line in which the block that was read begins, the last one first."""
    while at:
        size = min(_BLOCK, at)
        at -= size
        file.seek(at)
        head, *lines = file.read(size).split(b"\n")
        if lines:
            lines[-1] += b"".join(reversed(pending))
            pending = []
            whole = [line + b"\n" for line in reversed(lines) if line]
            yield b"".join(whole)
        pending.append(head)
    if any(pending):
        yield b"".join(reversed(pending)) + b"\n"
