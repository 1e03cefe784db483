"""JSON documents that hold the records of a log, logs in one row, and logs that begin with their newest line."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import msgspec

from cachedoctor.inputs.envelope import labels
from cachedoctor.inputs.envelope.collected import Collected, holds_line
from cachedoctor.inputs.envelope.shapes import is_written, moment
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json

MOST = 32 << 20
"""Maximum bytes of a document; in a longer one, record boundaries are known only after reading all of it."""
_LOOKED_AT = 20_000
"""Texts that are checked for a line of a server; a document without one in these is not a log."""
_DEEP = 8
_ARRAY = late(rb"(?:\xef\xbb\xbf)?\s*+\[\s*+(\S)")
_OBJECT = late(rb"(?:\xef\xbb\xbf)?\s*+\{")
_TEXT = late(rb"(?:\xef\xbb\xbf)?\s*+\"(?:[^\"\\\n]|\\.)*+(?:\"\s*+|\\)?\Z")
"""A string, whole or up to where the bytes end: a field that a program such as jq extracted from a document."""
_TEXT_BYTES = 1 << 16
_OTHER_BREAK = late(rb"\r(?!\n)|(?<!\\)(?:\\r)?\\n")
"""What separates the lines of a log without newlines: a carriage return alone, or the two characters of an escape."""
_MOST_PIECES = 64
"""Pieces of one row that are checked for lines of a server."""
_INDENTED = late(rb"(?:\xef\xbb\xbf)?\s*+\{[ \t\r]*+\n\s++\"")
_BETWEEN = late(rb"\n\}(?=[ \t\r]*+\n\s*+\{)")
_ARRAYS = msgspec.json.Decoder(list[msgspec.Raw])
_ORIGINS: tuple[labels.Role, ...] = ("pod", "container", "stream name", "unit", "host", "id", "file", "stream")


class Documents:
    """Takes the chunks of one input, and gives chunks of a log with one record per line."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0
        self._passes = False
        self._in_lines = False
        self._in_row = False
        self._collected = Collected()
        self.opened = False
        """Whether lines that were given are records of a document."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give what need not wait for the end of a document."""
        if self._passes:
            return chunk
        self._held += chunk
        if not (self._in_lines or self._in_row) and self._is_document() is False:
            self._in_row = _is_row(bytes(self._held))
            if not self._in_row:
                return self._release()
        if self._in_row:
            return self._pieces()
        if self._in_lines:
            return self._batches()
        return self._release() if len(self._held) > MOST else b""

    def finish(self) -> bytes:
        """The input ended: give the rest."""
        if not self._held:
            return b""
        if self._in_lines:
            return self._batches(last=True)
        if self._in_row or _is_row(bytes(self._held)):
            return self._pieces(last=True)
        lines = _opened(bytes(self._held), self._collected)
        if lines is None:
            return self._release()
        self.opened = True
        self._held.clear()
        return lines

    def _release(self) -> bytes:
        out, self._held, self._passes = bytes(self._held), bytearray(), True
        return out

    def _is_document(self) -> bool | None:
        """Whether the first bytes begin a document; None if more are needed."""
        held = self._held
        if found := _ARRAY.match(held):
            return found[1] == b"{"
        if _TEXT.match(held, 0, _TEXT_BYTES):
            return True
        if not _OBJECT.match(held):
            begin = bytes(held[:64]).strip(b"\xef\xbb\xbf \t\r\n")
            return None if len(held) < 64 and not begin.strip(b"[") else self._may_be_row()
        if _INDENTED.match(held):
            return True
        end = held.find(b"\n", self._searched)
        self._searched = len(held)
        if end < 0:
            return None
        if not held[:end].strip(b" \t\r{"):
            return None if len(held) - end < 64 and not held[end:].strip() else False
        if b"[" in held[:end] and _opened(bytes(held[:end]), self._collected) is not None:
            self._in_lines = self.opened = True
            return None
        return False

    def _may_be_row(self) -> bool | None:
        """Return None while the first bytes may be a log in one row; decide it once they are enough."""
        end = self._held.find(b"\n", self._searched)
        self._searched = len(self._held)
        if end >= 0 and not (end == len(self._held) - 1 and _OTHER_BREAK.search(self._held)):
            return False
        if len(self._held) < _TEXT_BYTES:
            self._searched -= end >= 0
            return None
        return False

    def _pieces(self, last: bool = False) -> bytes:
        """Give the lines of a log in one row, each with a newline."""
        lines = _OTHER_BREAK.sub(b"\n", bytes(self._held))
        cut = len(lines) if last else lines.rfind(b"\n") + 1
        self._held = bytearray(lines[cut:])
        return lines[:cut]

    def _batches(self, last: bool = False) -> bytes:
        """Open lines that are documents each."""
        cut = len(self._held) if last else self._held.rfind(b"\n") + 1
        lines, self._held = bytes(self._held[:cut]), self._held[cut:]
        out = [_opened(line, self._collected) or line + b"\n" for line in lines.split(b"\n") if line.strip()]
        if len(self._held) > MOST:
            out.append(self._release())
        return b"".join(out)


def _is_row(held: bytes) -> bool:
    """Whether several lines of a server are in one row: its line ends were replaced."""
    row, newline, _ = held[:_TEXT_BYTES].partition(b"\n")
    if newline and held[len(row) + 1 :]:
        return False
    pieces = _OTHER_BREAK.split(row, _MOST_PIECES)
    return sum(map(is_written, pieces)) * 2 > len(pieces) > 1


class _Reading:
    """Opens one document."""

    def __init__(self) -> None:
        self.lists = 0
        """Lists that records came from."""
        self._left = _LOOKED_AT

    def opened(self, document: bytes) -> Iterator[dict[str, Any]]:
        """Yield the records of a document; those of an array are decoded one by one, as far as they are asked for."""
        if not document.lstrip().startswith(b"["):
            value = msgspec.json.decode(document)
            yield from self.records({"message": value} if isinstance(value, str) else value, {})
            return
        self.lists += 1
        for raw in _ARRAYS.decode(document):
            value = msgspec.json.decode(raw)
            if isinstance(value, dict):
                yield from self.records(value, {}, 1)

    def records(self, value: Any, around: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the records of a value, each with the names ``around`` it."""
        if isinstance(value, dict):
            inner = [] if self._is_record(value) else list(_lists(value))
            if not inner:
                yield around | value
            for one in inner if depth < _DEEP else ():
                yield from self.records(one, around | _names(value), depth + 1)
        elif isinstance(value, list) and depth < _DEEP:
            self.lists += 1
            for one in value:
                if isinstance(one, list) and len(one) > 1 and isinstance(one[0], str) and isinstance(one[1], str):
                    yield around | {"timestamp": one[0], "line": one[1]}  # as Loki's API gives them
                elif isinstance(one, dict):
                    yield from self.records(one, around, depth + 1)

    def _is_record(self, value: dict[str, Any]) -> bool:
        for _, text in labels.strings(value):
            self._left -= 1
            if self._left > 0 and holds_line(text):
                return True
        return False


def _opened(document: bytes, collected: Collected) -> bytes | None:
    """Give the records of one or several documents, each on a line; None if no line of a server is in them.

    ``collected`` learns in which of the keys, and knows it from then on.
    """
    reading = _Reading()
    records: list[dict[str, Any]] = []
    try:
        for part in _objects(document.removeprefix(b"\xef\xbb\xbf")):
            for record in reading.opened(sound_json(part)):
                records.append(record)
                if not collected.known and collected.line_of(record) is None and not collected.undecided:
                    return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not collected.known:
        return None
    records = [record for record in records if collected.line_of(record) is not None]
    if reading.lists > 1:
        records = _in_time_order(records)
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _objects(document: bytes) -> Iterator[bytes]:
    """Yield consecutive objects, each over several lines; an array is one."""
    begin = 0
    for found in _BETWEEN.finditer(document):
        yield document[begin : found.end()]
        begin = found.end()
    yield document[begin:]


def _lists(value: dict[str, Any], depth: int = 0) -> Iterator[list[Any]]:
    for inner in value.values():
        if isinstance(inner, list) and inner and isinstance(inner[0], dict | list):
            yield inner
        elif isinstance(inner, dict) and depth < _DEEP:
            yield from _lists(inner, depth + 1)


def _names(value: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    found = labels.record_labels(value)
    for role in _ORIGINS:
        if role in found:
            labels.put(out, found[role].path, found[role].value)
    return out


def _in_time_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put records of several lists in the order of their time, where all have one."""
    times = []
    for record in records:
        found = labels.record_labels(record)
        time = moment(found["time"].value) if "time" in found else None
        if time is None:
            return records
        times.append(time)
    order = list(range(len(records)))
    if sum(b < a for a, b in itertools.pairwise(times)) * 2 > len(times):
        order.reverse()  # of those with one time, too
    return [records[at] for at in sorted(order, key=times.__getitem__)]


_LINES = 64
"""Lines that show the order."""
_BYTES = 1 << 20
_IN_MEMORY = 32 << 20
_BLOCK = 1 << 20
_STRAY = 20
"""One pair in this many may be out of order: clocks of several servers."""


class NewestFirst:
    """Takes the chunks of one input, and gives them in the order of time."""

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
        """No new lines came: give what was held to find out the order."""
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
    found = labels.record_labels(record) if isinstance(record, dict) else {}
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
