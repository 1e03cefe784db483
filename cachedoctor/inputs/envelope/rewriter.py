"""Rewrites stored lines: bodies by one function, names in wrappers replaced, everything else unchanged."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import msgspec

from cachedoctor.inputs.envelope.collected import LogRecords
from cachedoctor.inputs.envelope.prefixes import HEADER, Prefixes, origin_of, within
from cachedoctor.inputs.envelope.records import RecordPiece
from cachedoctor.inputs.envelope.shapes import candidates, drop_progress, strip_controls
from cachedoctor.inputs.envelope.unwrapper import DEPTH_MAX
from cachedoctor.knowledge.late_patterns import late

_NUMBER = late(rb" *\d{1,5}")
_COUNTED = late(rb"[-_]\d\Z")
_HARMLESS = {"pid": late(rb"-|\d{1,10}"), "zone": late(rb"[A-Z]{1,5}|[+-]\d{2,4}")}


def renamed(match: re.Match[bytes], name: Callable[[str, bytes], bytes]) -> bytes:
    """Return the text of ``match`` with every named part renamed by ``name(kind, part)``."""
    out, at = [], match.start()
    groups = sorted((match.span(group), group) for group in match.re.groupindex if match[group] is not None)
    for (start, end), group in groups:
        out.append(match.string[at:start])
        out.append(_part(group, match[group], name))
        at = end
    out.append(match.string[at : match.end()])
    return b"".join(out)


def _part(group: str, raw: bytes, name: Callable[[str, bytes], bytes]) -> bytes:
    if group == "data":
        return b"-"
    harmless = _HARMLESS.get(group)
    if not raw.strip() or raw == b"-" or (harmless is not None and harmless.fullmatch(raw)):
        return raw
    if group == "logstream":  # taken for one by its slash
        return name("host", raw) + b"/0"
    if group != "origin":
        return name(group, raw)
    if _NUMBER.fullmatch(raw):  # the port of a router's child
        return raw
    counted = _COUNTED.search(raw)  # compose pads a name that ends so with one blank only
    return name(group, raw.strip()) + (counted[0] if counted else b"")


_WAITING_MAX = 4 << 20
"""Bytes of output that wait for the last part of a line. An unfinished line is then written as it is: its parts are
read one by one."""


class _WaitingLine(msgspec.Struct):
    """A stored line that waits for the rest of the line of which it holds a part."""

    head: bytes
    """Its outer wrappers, written again."""
    line: bytes
    """The record."""
    done: bytes | None = None


class _Joined(msgspec.Struct):
    """Records that together hold one line."""

    depth: int
    origin: bytes | None
    records: list[_WaitingLine]
    text: bytearray


class Rewriter:
    """Incremental: whole lines in, as many whole lines out, some of them later."""

    def __init__(self, bodies: Callable[[bytes], bytes], name: Callable[[str, bytes], bytes]) -> None:
        """Store the two functions.

        Args:
            bodies: gives as many lines as it is given, each with its newline.
            name: gives the name, without blanks and brackets, for a part of a wrapper of some kind (host, process).
        """
        self._bodies = bodies
        self._name = name
        self._prefixes = Prefixes()
        self._records = LogRecords()
        self._below_header = False
        self._joined: dict[tuple[bytes | None, str], _Joined] = {}
        self._waiting: deque[bytes | _WaitingLine] = deque()
        self._size = 0
        self._bare: list[bytes] = []
        """Lines without a wrapper that are still to be written."""

    def feed(self, block: bytes) -> bytes:
        """Take whole lines; give those that are finished."""
        block = strip_controls(block)
        position = 0
        for start in candidates(block):
            if start > position:
                self._plain(block[position:start])
            position = block.find(b"\n", start) + 1 or len(block)
            self._put(self._stored_line(block[start:position].removesuffix(b"\n")))
        if position < len(block):
            self._plain(block[position:])
        self._write_bare()
        if self._size > _WAITING_MAX:
            self._close_all()
        return self._taken()

    def flush(self) -> bytes:
        """The input ended: give what was waiting."""
        self._close_all()
        return self._taken()

    def _plain(self, lines: bytes) -> None:
        self._below_header = False
        self._records.came_bare(lines)
        self._bare.append(drop_progress(lines))

    def _put(self, made: bytes | _WaitingLine | None) -> None:
        if made is not None:
            self._write_bare()
            self._waiting.append(made)
            self._size += _size(made)

    def _write_bare(self) -> None:
        """Write lines without a wrapper together: one may continue in the next."""
        if self._bare:
            made = self._bodies(b"".join(self._bare)).removesuffix(b"\n")
            self._bare.clear()
            self._waiting.append(made)
            self._size += len(made)

    def _taken(self) -> bytes:
        out = []
        while self._waiting:
            first = self._waiting[0]
            made = first if isinstance(first, bytes) else first.done
            if made is None:
                break
            out.append(made + b"\n")
            self._waiting.popleft()
            self._size -= _size(first)
        return b"".join(out)

    # ---- one line

    def _stored_line(self, line: bytes) -> bytes | _WaitingLine | None:
        """Write a line that may be wrapped; None for one that is not and waits for those around it."""
        indented = self._below_header and line.startswith(b" ")
        header = None if indented else HEADER.fullmatch(line)
        self._below_header = header is not None
        if header is not None:
            return renamed(header, self._name)
        return self._line(line[1:] if indented else line, None, 0, b" " if indented else b"")

    def _line(
        self, line: bytes, origin: bytes | None, depth: int, head: bytes, inside: bool = False
    ) -> bytes | _WaitingLine | None:
        """Write ``line`` after ``head``. ``inside`` a record's text there is not another record to wait for."""
        while depth < DEPTH_MAX:
            depth += 1
            record = self._records.read(line, depth)
            if isinstance(record, RecordPiece):
                return self._piece(record, line, within(origin, record.origin), depth, head, inside)
            if record:
                text = self._text(record.text, origin, depth if record.nested else DEPTH_MAX)
                return head + self._records.rewritten(line, text, depth, self._name)
            frame = self._records.frame(line, depth, self._name) if line.startswith(b"{") else None
            if frame is not None:
                return head + frame
            match = self._prefixes.find(line)
            if match is None:
                self._records.came_without(line, depth)
                break
            head += renamed(match, self._name)
            origin = within(origin, origin_of(match))
            line = line[match.end() :]
        line = drop_progress(line) + b"\n"
        if not head and not inside:
            self._bare.append(line)
            return None
        return head + self._bodies(line).removesuffix(b"\n")

    def _text(self, text: bytes, origin: bytes | None, depth: int) -> bytes:
        """Write decoded text, which may hold several lines."""
        lines = strip_controls(text + b"\n").split(b"\n")[:-1]
        made = (self._line(line, origin, depth, b"", inside=True) for line in lines)
        return b"\n".join(line for line in made if isinstance(line, bytes))

    # ---- lines that are stored in parts

    def _piece(
        self, piece: RecordPiece, line: bytes, origin: bytes | None, depth: int, head: bytes, inside: bool
    ) -> bytes | _WaitingLine:
        key = (origin, piece.stream)
        joined = self._joined.get(key)
        if inside or (joined is None and piece.complete):
            text = self._text(piece.text, origin, depth)
            return head + self._records.rewritten(line, text, depth, self._name)
        if joined is None:
            joined = self._joined[key] = _Joined(depth, origin, [], bytearray())
        record = _WaitingLine(head, line)
        joined.records.append(record)
        joined.text += piece.text
        if piece.complete:
            self._close(key)
        return record

    def _close(self, key: tuple[bytes | None, str]) -> None:
        """Write the whole line into its first record, and nothing into the others."""
        joined = self._joined.pop(key)
        text = self._text(bytes(joined.text), joined.origin, joined.depth)
        for record in joined.records:
            record.done = record.head + self._records.rewritten(record.line, text, joined.depth, self._name)
            text = b""

    def _close_all(self) -> None:
        for key in list(self._joined):
            self._close(key)


def _size(made: bytes | _WaitingLine) -> int:
    return len(made) if isinstance(made, bytes) else len(made.line)
