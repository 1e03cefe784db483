"""Finds the messages of a catalogue in blocks of lines. The hot path: most lines never become objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from cachedoctor.engines.catalogue.base import GROUPS, Catalogue, Event, Message
from cachedoctor.engines.catalogue.reading import WithOthers, furthest
from cachedoctor.model import Segment

_NO_FIELDS: dict[str, Any] = {}
_NO_NUMBERS: Sequence[int] = ()
_MAX_SPELLINGS = 4096
"""Spellings of heads remembered; they differ in blanks only, and hostile text must not fill the memory."""


class LinePattern(Protocol):
    """A pattern, compiled or not yet."""

    def match(self, data: bytes, start: int, /) -> re.Match[bytes] | None:
        """Match at an offset."""


class ScanPlan(msgspec.Struct):
    """The messages that a scanner delivers."""

    wanted: frozenset[str]
    """Messages that have a listener."""
    once: frozenset[str] = frozenset()
    """Messages of which only the first line per slot and task is delivered."""
    fused_groups: int = 0
    """Groups of the catalogue's fused pattern."""
    runs: Mapping[str, LinePattern] = {}
    """Message -> pattern of its line with the following lines that have the same meaning: they are one event."""


_FIRST, _LAST = 5, 8
"""Lines up to the first batch, and from the head of the timing block on."""
_MANY = 2048
"""Bytes of fused lines up to which all of them are split."""


def _ends_of(text: bytes) -> list[bytes]:
    """Cut the first and the last of many lines; those between are empty."""
    between = text.count(b"\n") + 1 - _FIRST - _LAST
    if between < _LAST:
        return text.split(b"\n")
    return [*text.split(b"\n", _FIRST)[:_FIRST], *[b""] * between, *text.rsplit(b"\n", _LAST)[1:]]


class Scanner:
    """Scans the segments of one origin."""

    def __init__(self, catalogue: Catalogue, plan: ScanPlan) -> None:
        self._catalogue = catalogue
        self._plan = plan
        self._first_group = 3 + plan.fused_groups
        self._rows: dict[int, dict[bytes, list[Message]]] = {self._first_group + i: {} for i in range(3)}
        self._last: dict[tuple[str, bytes], bytes] = {}
        self.last_line = 0
        """Number of the last of these lines."""
        self.recognised = 0
        """Lines that began like a message of the catalogue, wanted or not; those without a server's prefix only if the
        whole message fits, since such words are in any text."""

    def scan(self, segment: Segment) -> Iterator[Event]:
        """Events in line order."""
        data = b"\n" + segment.data
        rows_of, count, slot_group = self._rows, data.count, self._first_group
        bare_group = slot_group + 2
        first, numbers, runs = segment.first, segment.numbers, self._plan.runs
        line, counted, seen, past = -1, 0, 0, 0
        found, group = None, 0
        for found in list(self._catalogue.pattern.finditer(data)):  # in one go, which spares the processor's cache
            group = found.lastindex or 0
            if group < slot_group:
                at, end = found.span()
                at += 1
                texts = data[at:end].split(b"\n") if end - at < _MANY else _ends_of(data[at:end])
                lines = len(texts)
                begins = line + (1 if at - counted == 1 else count(b"\n", counted, at))
                line, counted, seen = begins + lines - 1, end, seen + lines
                number, spans = first + begins, _NO_NUMBERS
                if numbers is not None:  # lines of others may come between them, or several stand in one record
                    number, spans = numbers[begins], numbers[begins : line + 1]
                    if spans == list(range(number, number + lines)):
                        spans = _NO_NUMBERS
                yield Event("fused", None, _NO_FIELDS, -1, -1, number, data, at, end, found, spans, texts)
                continue
            seen += 1
            if found.start() < past:
                continue
            head = found[group]
            rows = rows_of[group].get(head)
            if rows is None:
                rows = self._learn(group, head)
            if not rows:
                continue
            row = rows[0]
            slot = task = -1
            if group == slot_group:
                if row.repeats and self._repeated(row.id, found[1], found[2]):
                    continue
                slot, task = int(found[1]), int(found[2])
            start = found.end() - len(head)
            match = row.exact_match(data, start)
            if match is None:
                other, fields = self._other(rows, data, start)
                if other is None or other.id not in self._plan.wanted:
                    seen -= other is None and group == bare_group
                    continue
                row = other
            elif group == bare_group and row.id not in self._plan.wanted:
                seen -= row.quoted
                continue
            elif row.integers:
                fields = dict(zip(row.names, map(int, match.groups())))  # noqa: B905  # same length by construction, and hot
            else:
                fields = row.convert(match)
            seen -= row.quoted
            at = found.start() + 1
            line += count(b"\n", counted, at)
            counted = at
            run = runs[row.id].match(data, at) if runs and row.id in runs else None
            if run is not None:
                past, number = run.end(), first + line
                more = count(b"\n", at, past) + 1
                spans = range(number, number + more) if numbers is None else numbers[line : line + more]
                yield Event(row.id, row, fields, -1, -1, spans[0], data, at, past, None, spans)
                continue
            yield Event(row.id, row, fields, slot, task, first + line if numbers is None else numbers[line], data, at)
        self.recognised += seen
        if found is not None:
            line += count(b"\n", counted, found.end() if group < slot_group else found.start() + 1)
            self.last_line = first + line if numbers is None else numbers[line]

    def first(self, message: str, slot: int, task: int) -> bool:
        """Whether this is the first line of its kind that the task has on the slot; for lines read together."""
        key, number = (message, b"%d" % slot), b"%d" % task
        if self._last.get(key) == number:
            return False
        self._last[key] = number
        return True

    def forget(self, slot: int | None = None) -> None:
        """Forget the task numbers seen on one slot, or on all slots after a restart: the numbers may come again."""
        number = None if slot is None else b"%d" % slot
        self._last = {key: task for key, task in self._last.items() if number not in (None, key[1])}

    def singly(self, event: Event) -> Iterator[Event]:
        """Events of the lines that ``event`` stands for, each read as if the input had been split around it."""
        for number, line in zip(event.numbers, event.whole.split(b"\n"), strict=True):
            counted, last = self.recognised, self.last_line
            found = list(self.scan(Segment(None, line + b"\n", number)))
            self.recognised, self.last_line = counted, last  # the line was counted with the event
            yield from found

    def recognise_all(self, lines: Iterable[bytes]) -> list[Message]:
        """Wanted rows of several lines, one by one."""
        rows = [event.row for line in lines for event in self._catalogue.recognise(line)]
        return [row for row in rows if row is not None and row.id in self._plan.wanted]

    def _repeated(self, message: str, slot: bytes, task: bytes) -> bool:
        """Note a line of a message that is printed again and again; only the first one of a task is an event."""
        if self._last.get((message, slot)) == task:
            return True
        self._last[message, slot] = task
        return False

    def _learn(self, group: int, head: bytes) -> list[Message]:
        """Rows for a spelling of a head that is met for the first time; none when nobody listens to any of them."""
        rows = self._catalogue.candidates(GROUPS[group - self._first_group], head)
        bare = group == self._first_group + 2
        if not bare and not any(row.id in self._plan.wanted for row in rows):
            rows = []
        for row in rows:
            row.repeats = row.id in self._plan.once
        if len(self._rows[group]) < _MAX_SPELLINGS:
            self._rows[group][head] = rows
        return rows

    @staticmethod
    def _other(rows: list[Message], data: bytes, start: int) -> tuple[Message | None, dict[str, Any]]:
        """Find another wording with the same head, else one with unknown text after it."""
        if len(rows) > 1:
            for i, row in enumerate(rows[1:], 1):  # the first does not fit
                fields = row.match(data, start)
                if fields is not None:
                    rows.insert(0, rows.pop(i))  # the wording of this build comes first from now on
                    return row, fields
            rows = sorted(rows, key=lambda r: -len(r.template))
        for row in rows:
            found = row.loose_match(data, start)
            if found is not None:
                return row, row.convert(found)
        named = furthest(rows, data, start)
        if named is None:
            return None, {}
        row, places = named[0], named[1].fields
        return row, WithOthers({name: row.value(name, data[at.start : at.end]) for name, at in places.items()})


class SingleScanner(Scanner):
    """Delivers what a scanner with the same plan delivers, and further messages for listeners."""

    def __init__(self, catalogue: Catalogue, plan: ScanPlan, more: frozenset[str]) -> None:
        """Begin without a line.

        Args:
            catalogue: one without a fused pattern.
            plan: what is delivered; groups of a fused pattern are passed over.
            more: messages that are delivered as well, to be told of.
        """
        super().__init__(catalogue, msgspec.structs.replace(plan, wanted=plan.wanted | more, fused_groups=0))
        self._more = more
        self._once = plan.once
        self._again = False
        self.is_extra = False
        """Nobody but a listener asks for the event that was delivered last."""

    def scan(self, segment: Segment) -> Iterator[Event]:
        """Events in line order."""
        for event in super().scan(segment):
            again, self._again = self._again and event.message in self._once, False
            self.is_extra = again or event.message in self._more
            yield event

    def _repeated(self, message: str, slot: bytes, task: bytes) -> bool:
        self._again = super()._repeated(message, slot, task)
        return False
