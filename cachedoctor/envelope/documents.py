"""JSON documents that hold the records of a log: one array, an answer of an API, objects written over several lines.

They become one record per line, which is how all others read them: ``jq -c '.[]'``. Knows documents; a log that is
none passes through untouched, from its first bytes on.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cachedoctor.envelope import labels
from cachedoctor.envelope.clock import moment
from cachedoctor.envelope.collected import Collected, holds_line
from cachedoctor.knowledge.texts import sound_json

MOST = 32 << 20
"""Bytes of a document; of a longer one it is not known where a record ends before all of it was read."""
_LOOKED_AT = 20_000
"""Texts that are looked at for a line of a server; a document without one in these is no log."""
_DEEP = 8
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[\s*+(\S)")
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_INDENTED = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{[ \t\r]*+\n\s++\"")
_BETWEEN = re.compile(rb"\n\}(?=[ \t\r]*+\n\s*+\{)")
_ARRAYS = msgspec.json.Decoder(list[msgspec.Raw])
_ORIGINS: tuple[labels.Role, ...] = ("pod", "container", "stream name", "unit", "host", "id", "file", "stream")


class Documents:
    """Feeds on the chunks of one input, gives those of a log with a record per line."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0
        self._passes = False
        self._in_lines = False
        self._collected = Collected()
        self.opened = False
        """Whether lines that were given are records of a document."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give what need not wait for the end of a document."""
        if self._passes:
            return chunk
        self._held += chunk
        if not self._in_lines:
            document = self._is_document()
            if document is False:
                return self._release()
        if self._in_lines:
            return self._batches()
        return self._release() if len(self._held) > MOST else b""

    def finish(self) -> bytes:
        """The input ended: give the rest."""
        if not self._held:
            return b""
        if self._in_lines:
            return self._batches(last=True)
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
        """Whether the first bytes begin a document; None where more are needed."""
        held = self._held
        if found := _ARRAY.match(held):
            return found[1] == b"{"
        if not _OBJECT.match(held):
            begin = bytes(held[:64]).strip(b"\xef\xbb\xbf \t\r\n")
            return None if len(held) < 64 and not begin.strip(b"[") else False
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

    def _batches(self, last: bool = False) -> bytes:
        """Open lines that are documents each."""
        cut = len(self._held) if last else self._held.rfind(b"\n") + 1
        lines, self._held = bytes(self._held[:cut]), self._held[cut:]
        out = [_opened(line, self._collected) or line + b"\n" for line in lines.split(b"\n") if line.strip()]
        if len(self._held) > MOST:
            out.append(self._release())
        return b"".join(out)


class _Reading:
    """Opens one document."""

    def __init__(self) -> None:
        self.lists = 0
        """Lists that records came from."""
        self._left = _LOOKED_AT

    def opened(self, document: bytes) -> Iterator[dict[str, Any]]:
        """Yield the records of a document; those of an array are decoded one by one, as far as they are asked for."""
        if not document.lstrip().startswith(b"["):
            yield from self.records(msgspec.json.decode(document), {})
            return
        self.lists += 1
        for raw in _ARRAYS.decode(document):
            value = msgspec.json.decode(raw)
            if isinstance(value, dict):
                yield from self.records(value, {}, 1)

    def records(self, value: Any, around: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the records of a value, each with the names that stand ``around`` it."""
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
    """Give the records of one or several documents, each on a line; None where no line of a server is in them.

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
    """Yield the objects that stand one behind the other, each over several lines; an array is one."""
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
    found = labels.labels(value)
    for role in _ORIGINS:
        if role in found:
            labels.put(out, found[role].path, found[role].value)
    return out


def _in_time_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put records of several lists in the order of their time, where all have one."""
    times = []
    for record in records:
        found = labels.labels(record)
        time = moment(found["time"].value) if "time" in found else None
        if time is None:
            return records
        times.append(time)
    order = list(range(len(records)))
    if sum(b < a for a, b in itertools.pairwise(times)) * 2 > len(times):
        order.reverse()  # of those with one time, too
    return [records[at] for at in sorted(order, key=times.__getitem__)]
