"""Catalogues of log messages: rows in printf words, compiled to patterns, and the scanner that finds them in blocks.

Knows how a row becomes a pattern. Knows no particular message, no request, no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cachedoctor.engines.heads import literal_pattern, trie_pattern
from cachedoctor.model import Segment

_HOLE = re.compile(r"\{([A-Za-z_][\w.]*):(\w+)\}|\{\?(.*)\}$")

# kind of a hole: pattern, converter, and whether the value can hold a user's words (redaction asks)
_KINDS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "d": (r"-?\d+", int),
    "f": (r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan(?:\([a-z]*\))?)", lambda raw: float(raw.split(b"(")[0])),
    "x": (r"(?:0x)?[0-9a-fA-F]+", lambda raw: raw.decode("ascii")),
    "func": (r"[^\s:]+", lambda raw: raw.decode("utf-8", "replace")),
    "word": (r"[^\s,()']*", lambda raw: raw.decode("utf-8", "replace")),
    "words": (r"[^,()']*?", lambda raw: raw.decode("utf-8", "replace")),
    "method": (r"[A-Z]+", lambda raw: raw.decode("ascii")),
    "url": (r"[^\s)]*", lambda raw: raw.decode("utf-8", "replace")),
    "path": (r".*?", lambda raw: raw.decode("utf-8", "replace")),
    "host": (r"\S+?", lambda raw: raw.decode("utf-8", "replace")),
    "json": (r"[\[{<\"].*", lambda raw: raw.decode("utf-8", "replace")),
    "ids": (r"-?\d+(?: +-?\d+)*", lambda raw: raw.decode("ascii")),
    "sentence": (r"[A-Z<].*?[^,\s]", lambda raw: raw.decode("utf-8", "replace")),
    "setting": (r"unset.*?|\S+", lambda raw: raw.decode("utf-8", "replace")),
    "nolimit": (r"[a-z].*", lambda raw: raw.decode("utf-8", "replace")),
    "text": (r".*?", lambda raw: raw.decode("utf-8", "replace")),
}


class Event(msgspec.Struct):
    """A line that a row of the catalogue recognised."""

    message: str
    """Id of the message, the same over all its wordings."""
    row: Message
    fields: dict[str, Any]
    slot: int
    """Slot id, -1 when the line names none."""
    task: int
    """Task id, -1 when the line names none."""
    line: int
    """1-based line number in the input."""
    text: bytes
    """The whole line without its wrapper."""
    stamp: bytes | None
    """Uptime as printed, ``M.SS.mmm.uuu``, or None."""
    level: bytes | None
    """Level letter as printed, or None."""

    @property
    def seconds(self) -> float | None:
        """Uptime in seconds, or None when the line carries no clock."""
        return uptime_seconds(self.stamp)


def uptime_seconds(stamp: bytes | None) -> float | None:
    """Seconds since the start of the server from ``M.SS.mmm.uuu`` (minutes are unbounded)."""
    if stamp is None:
        return None
    minutes, seconds, millis, micros = stamp.split(b".")
    return int(minutes) * 60 + int(seconds) + int(millis) / 1e3 + int(micros) / 1e6


class Message:
    """A row of a catalogue: one wording of one message.

    ``template`` repeats the server's printf string with typed holes, ``{name:kind}``; ``{?...}`` at the end is
    optional. Runs of blanks match any run of blanks, so that pasted text with collapsed columns is recognised.
    ``levels`` says from which build on the message has which level: ``"I6751 T9873"`` is INFO from b6751 and TRACE
    from b9873 (I, W, E, D as usual; T trace, L library info, O always printed, P part of an error's text).
    """

    def __init__(
        self, id: str, component: str, first: int, last: int, levels: str, template: str, sample: str,
        heads: tuple[str, ...] = (),
    ) -> None:
        self.id = id
        self.component = component
        self.first = first
        self.last = last
        self.levels = levels
        self.template = template
        self.sample = sample
        self.has_func = template.startswith("{__func__:func}: ") or template.startswith("{func:func}: ")
        self._body = template.split("}: ", 1)[1] if self.has_func else template
        self.heads = heads or (re.split(r"\{(?:\?|[A-Za-z_][\w.]*:)", self._body, maxsplit=1)[0].strip(),)
        self._exact: re.Pattern[bytes] | None = None
        self._loose: re.Pattern[bytes] | None = None
        self._holes: list[tuple[str, Callable[[bytes], Any]]] = []

    def _compile(self) -> None:
        source = self._pattern(self._body)
        self._exact = re.compile(source + rb"[ \t]*(?=\n|\Z)")
        self._loose = re.compile(source)

    def _pattern(self, template: str) -> bytes:
        out, at = [], 0
        for hole in _HOLE.finditer(template):
            out.append(literal_pattern(template[at : hole.start()]))
            if hole.group(3) is not None:
                out.append(b"(?:" + self._pattern(hole.group(3)) + b")?")
            else:
                pattern, convert = _KINDS[hole.group(2)]
                self._holes.append((hole.group(1), convert))
                blank = b"[ \t]*" if hole.group(2) in "dfx" else b""
                out.append(blank + b"(" + pattern.encode() + b")")
            at = hole.end()
        out.append(literal_pattern(template[at:]))
        return b"".join(out)

    def match(self, data: bytes, start: int, *, loose: bool = False) -> dict[str, Any] | None:
        """Fields of the message that starts at ``start``, or None. ``loose`` lets unknown text follow."""
        if self._exact is None:
            self._compile()
        pattern = self._loose if loose else self._exact
        found = pattern.match(data, start) if pattern else None
        if found is None:
            return None
        values = zip(self._holes, found.groups(), strict=True)
        return {name: convert(raw) for (name, convert), raw in values if raw is not None}

    def level_at(self, build: int) -> str:
        """Letter of the level at ``build``: I, W, E, D, T, L, O or P."""
        letter = self.levels[0]
        for part in self.levels.split():
            if int(part[1:]) <= build:
                letter = part[0]
        return letter


class Catalogue:
    """The rows of one engine and the scanner over them."""

    _STAMP = rb"(?:(\d+\.\d\d\.\d\d\d\.\d\d\d) +)?(?:([IWEDT]) +)?"
    _SLOT = rb"(?:slot +)?(?:[^\s:|]*: *)?id +(\d+) *\| *task +(-?\d+) *\| *"
    _OTHER = rb"(srv|que|res|cmn|spec) +(?:[^\s:]*: *)?(?:[^\s:]+: )?"
    _BARE = rb"[ \t]*(?:[^\s:]+:(?:\d+:)? )?"

    def __init__(self, rows: list[Message], always: frozenset[str] = frozenset()) -> None:
        self.rows = rows
        self.always = always
        self._by_head: dict[tuple[bytes, bytes], list[Message]] = {}
        heads: dict[bytes, set[str]] = {b"slot": set(), b"srv": set(), b"bare": set()}
        for row in rows:
            group = self._group(row.component)
            for head in row.heads:
                if head:
                    heads[group].add(head)
                self._by_head.setdefault((group, head.encode()), []).append(row)
        heads[b"srv"] |= heads[b"bare"]  # library texts are reprinted under a server prefix
        slot, other, bare = (trie_pattern(sorted(heads[g])) for g in (b"slot", b"srv", b"bare"))
        # An empty message is the header of a timing block, `slot print_timing: id  0 | task 9 | `; digits are token ids.
        body = (
            rb"(?:" + self._SLOT + rb"(" + slot + rb"|(?=[ \t]*(?:\n|-?\d)))"
            rb"|" + self._OTHER + rb"(" + other + rb")|" + self._BARE + rb"(" + bare + rb"))"
        )
        self._scan = re.compile(rb"\n" + self._STAMP + body)
        self._alias: dict[tuple[bytes, bytes], list[Message]] = {}

    @staticmethod
    def _group(component: str) -> bytes:
        if component == "slot":
            return b"slot"
        return b"srv" if component in ("srv", "que", "res", "cmn", "spec") else b"bare"

    def _candidates(self, group: bytes, head: bytes) -> list[Message]:
        """Rows that begin with ``head``; blanks in the log may be collapsed or doubled."""
        rows = self._alias.get((group, head))
        if rows is None:
            plain = b" ".join(head.split())
            rows = list(self._by_head.get((group, plain), ()))
            if group == b"srv":
                rows += self._by_head.get((b"bare", plain), ())
            self._alias[(group, head)] = rows
        return rows

    def scan(self, segment: Segment, wanted: frozenset[str]) -> Iterator[Event]:
        """Events of the messages in ``wanted``, in line order; ``self.recognised`` grows by every line that a head fits."""
        data = b"\n" + segment.data
        line, counted = -1, 0
        count = data.count
        for found in self._scan.finditer(data):
            stamp, level, slot, task, slot_head, _, other_head, bare_head = found.groups()
            self.recognised += 1
            if slot_head is not None:
                group, head = b"slot", slot_head
            elif other_head is not None:
                group, head = b"srv", other_head
            else:
                group, head = b"bare", bare_head
            rows = self._alias.get((group, head))
            if rows is None:
                rows = self._candidates(group, head)
            if not rows or (len(rows) == 1 and rows[0].id not in wanted):
                continue
            start = found.end() - len(head)
            row, fields = self._first(rows, data, start)
            if row is None or row.id not in wanted:
                continue
            at = found.start()
            line += count(b"\n", counted, at + 1)
            counted = at + 1
            end = data.find(b"\n", start)
            text = data[at + 1 : end if end >= 0 else None]
            number = segment.first + line if segment.numbers is None else segment.numbers[line]
            yield Event(row.id, row, fields, int(slot) if slot else -1, int(task) if task else -1, number, text, stamp, level)

    recognised: int = 0

    @staticmethod
    def _first(rows: list[Message], data: bytes, start: int) -> tuple[Message | None, dict[str, Any]]:
        for i, row in enumerate(rows):
            fields = row.match(data, start)
            if fields is not None:
                if i:  # the wording of this build comes first from now on
                    rows.insert(0, rows.pop(i))
                return row, fields
        for row in sorted(rows, key=lambda r: -len(r.template)):
            fields = row.match(data, start, loose=True)
            if fields is not None:
                return row, fields
        return None, {}

    def recognise(self, body: bytes) -> list[Event]:
        """Every row that matches the single line ``body`` exactly (one, unless the catalogue is ambiguous)."""
        head = self._STAMP + rb"(?:" + self._SLOT + rb"()|" + self._OTHER.removesuffix(rb"(?:[^\s:]+: )?") + rb"()|)[ \t]*"
        found = re.match(head, body)
        assert found is not None  # every part is optional
        stamp, level, slot, task, is_slot, _, is_other = found.groups()
        group = b"slot" if is_slot is not None else b"srv" if is_other is not None else b"bare"
        events = []
        for row in self.rows:
            if self._group(row.component) == group or (group == b"srv" and self._group(row.component) == b"bare"):
                start, func = found.end(), None
                if row.has_func:
                    func = re.compile(rb"(\S+?): ").match(body, start)
                    start = func.end() if func else start
                fields = row.match(body, start)
                if fields is not None and (func is not None) == row.has_func:
                    if func is not None:
                        fields = {row.template[1:].split(":")[0]: func.group(1).decode("utf-8", "replace"), **fields}
                    events.append(
                        Event(row.id, row, fields, int(slot) if slot else -1, int(task) if task else -1, 1, body, stamp, level)
                    )
        return events
