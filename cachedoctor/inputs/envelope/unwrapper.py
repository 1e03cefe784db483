"""Turns lines as they were stored into bodies by origin."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachedoctor.inputs.envelope.collected import LogRecords
from cachedoctor.inputs.envelope.prefixes import HEADER, Prefixes, within
from cachedoctor.inputs.envelope.records import RecordPiece, read_record
from cachedoctor.inputs.envelope.shapes import candidates, drop_progress, ends, is_plain, strip_controls
from cachedoctor.model import Segment

DEPTH_MAX = 4
"""Wrappers around one line: docker around a router's JSON line around its child's JSON line makes four."""
_HELD_MAX = 4 << 20
"""Bytes of unfinished lines; a log that never ends a line must not fill the memory."""
_HELD_LINES_MAX = 256
_ORIGINS_MAX = 256
"""Servers told apart; each has its own state. Lines of further ones, which no router has, go together."""


class _PartialLine(msgspec.Struct):
    """A line of which some records are still to come."""

    number: int
    depth: int
    text: bytearray
    clock: bytes
    """Of its first record as it was stored, what may hold the time."""


class _Demux:
    """Collects bodies by origin."""

    def __init__(self) -> None:
        self._bodies: dict[bytes | None, tuple[list[bytes], list[int]]] = {}

    def add(self, origin: bytes | None, data: bytes, numbers: Iterable[int]) -> None:
        found = self._bodies.get(origin)
        if found is None:
            found = self._bodies[origin] = ([], [])
        found[0].append(data)
        found[1].extend(numbers)

    def segments(self, stored: dict[int, bytes]) -> list[Segment]:
        made = []
        for origin, (parts, counted) in self._bodies.items():
            first = counted[0]
            consecutive = counted == list(range(first, first + len(counted)))
            name = None if origin is None else origin.decode("utf-8", "backslashreplace")
            made.append(Segment(name, b"".join(parts), first, None if consecutive else counted, stored))
        return made


class Unwrapper:
    """Incremental: complete lines in, Segments of bodies out.

    What a line means depends on the lines before it, never on where the input was cut into blocks.
    """

    def __init__(self) -> None:
        self._prefixes = Prefixes()
        self._records = LogRecords()
        self._held: dict[tuple[bytes | None, str], _PartialLine] = {}
        self._held_size = 0
        self._below_header = False
        self._origins: set[bytes] = set()
        self._out = _Demux()
        self._stored: dict[int, bytes] = {}

    def feed(self, block: bytes, first: int) -> list[Segment]:
        """Return the bodies of the complete lines in ``block``; ``first`` is the 1-based number of its first line."""
        if not block:
            return []
        block = strip_controls(block)
        plain = is_plain(block)
        starts = [] if plain else candidates(block)
        if not starts:
            self._below_header = False
            self._records.came_bare(block)
            return [Segment(None, drop_progress(block), first, is_plain=plain)]
        number, position = first, 0
        for start in starts:
            if start > position:
                number = self._pass_on(block[position:start], number)
            position = block.find(b"\n", start) + 1 or len(block)
            self._stored_line(block[start:position].removesuffix(b"\n"), number)
            number += 1
        if position < len(block):
            self._pass_on(block[position:], number)
        return self._taken()

    @property
    def settled(self) -> bool:
        """No line before has a say in what the next one means."""
        return not (self._below_header or self._held or self._prefixes.known or self._records.known or self._origins)

    def flush(self) -> list[Segment]:
        """Return the lines that were waiting for their last part."""
        for origin, stream in list(self._held):
            self._release(origin, stream)
        return self._taken()

    def _taken(self) -> list[Segment]:
        out, self._out = self._out, _Demux()
        stored, self._stored = self._stored, {}
        return out.segments(stored)

    def _pass_on(self, lines: bytes, number: int) -> int:
        after = number + lines.count(b"\n")
        self._records.came_bare(lines)
        self._out.add(None, drop_progress(lines), range(number, after))
        self._below_header = False
        return after

    def _stored_line(self, line: bytes, number: int) -> None:
        if self._below_header and line.startswith(b" "):
            line = line[1:]  # LM Studio indents the text below its header by one space
        self._below_header = HEADER.fullmatch(line) is not None
        if not self._below_header:
            self._stored[number] = line
            self._line(line, number, None, 0)

    def _line(self, line: bytes, number: int, origin: bytes | None, depth: int) -> None:
        while depth < DEPTH_MAX:
            depth += 1
            record = read_record(line) if depth <= self._records.plain else self._records.read(line, depth)
            if isinstance(record, RecordPiece):
                inner = record.origin
                self._join(record, number, origin if inner is None else within(origin, inner), depth)
                return
            if record:
                inner = within(origin, record.origin)
                self._text(record.text, number, inner, depth if record.nested else DEPTH_MAX)
                return
            peeled = self._prefixes.peel(line)
            if not peeled:
                if depth > self._records.decided:
                    self._records.came_without(line, depth)
                break
            line, inner = peeled
            if inner:
                origin = within(origin, inner)
        if origin is not None and origin not in self._origins:
            if len(self._origins) < _ORIGINS_MAX:
                self._origins.add(origin)
            else:
                origin = None
        self._out.add(origin, drop_progress(line) + b"\n", (number,))

    def _text(self, text: bytes, number: int, origin: bytes | None, depth: int) -> None:
        """Take decoded text, which may hold escapes and several lines that the stored line could not."""
        for line in strip_controls(text + b"\n").split(b"\n")[:-1]:
            self._line(line, number, origin, depth)

    def _join(self, piece: RecordPiece, number: int, origin: bytes | None, depth: int) -> None:
        key = (origin, piece.stream)
        held = self._held.get(key)
        if held is None:
            if piece.complete:
                self._text(piece.text, number, origin, depth)
                return
            held = self._held[key] = _PartialLine(number, depth, bytearray(), ends(self._stored[number]))
        held.text += piece.text
        self._held_size += len(piece.text)
        if piece.complete or self._held_size > _HELD_MAX or len(self._held) > _HELD_LINES_MAX:
            self._release(*key)

    def _release(self, origin: bytes | None, stream: str) -> None:
        held = self._held.pop((origin, stream))
        self._held_size -= len(held.text)
        self._stored.setdefault(held.number, held.clock)
        self._text(bytes(held.text), held.number, origin, held.depth)
