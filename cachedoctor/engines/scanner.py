"""Finds the messages of a catalogue in blocks of lines. The hot path: most lines never become an object.

Knows blocks, heads and rows. Knows no particular message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cachedoctor.engines.base import Catalogue, Event, Message
from cachedoctor.model import Segment

_GROUPS = {3: "slot", 4: "srv", 5: "bare"}


class Scanner:
    """Scans segments for the messages that somebody listens to.

    Of a message in ``once`` only the first line per slot and task is delivered.
    """

    def __init__(self, catalogue: Catalogue, wanted: frozenset[str], once: frozenset[str] = frozenset()) -> None:
        self._catalogue = catalogue
        self._wanted = wanted
        self._once = once
        self._rows: dict[int, dict[bytes, list[Message]]] = {group: {} for group in _GROUPS}
        self._last: dict[tuple[str, bytes], bytes] = {}
        self.recognised = 0
        """Lines that began like a message of the catalogue, wanted or not."""

    def scan(self, segment: Segment) -> Iterator[Event]:
        """Events in line order."""
        data = b"\n" + segment.data
        rows_of, once, last, count = self._rows, self._once, self._last, data.count
        first, numbers = segment.first, segment.numbers
        line, counted, seen = -1, 0, 0
        for found in self._catalogue.pattern.finditer(data):
            seen += 1
            group = found.lastindex
            head = found[group]
            rows = rows_of[group].get(head)
            if rows is None:
                rows = self._learn(group, head)
            if not rows:
                continue
            row = rows[0]
            if group == 3:
                slot, task = found[1], found[2]
                if row.id in once:
                    if last.get((row.id, slot)) == task:
                        continue
                    last[row.id, slot] = task
            else:
                slot = task = b"-1"
            start = found.end() - len(head)
            match = row.exact_match(data, start)
            if match is None:
                row, fields = self._other(rows, data, start)
                if row is None or row.id not in self._wanted:
                    continue
            elif row.integers:
                fields = dict(zip(row.names, map(int, match.groups())))  # noqa: B905  # same length by construction, and hot
            else:
                fields = row.convert(match)
            at = found.start() + 1
            line += count(b"\n", counted, at)
            counted = at
            yield Event(row.id, row, fields, int(slot), int(task), first + line if numbers is None else numbers[line], data, at)
        self.recognised += seen

    def _learn(self, group: int, head: bytes) -> list[Message]:
        """Rows for a spelling of a head that is met for the first time; none when nobody listens to any of them."""
        rows = self._catalogue.candidates(_GROUPS[group], head)
        if not any(row.id in self._wanted for row in rows):
            rows = []
        for row in rows:
            row.prepare()
        if len(self._rows[group]) < 4096:  # spellings differ in blanks only; hostile text must not fill the memory
            self._rows[group][head] = rows
        return rows

    @staticmethod
    def _other(rows: list[Message], data: bytes, start: int) -> tuple[Message | None, dict[str, Any]]:
        """Find another wording with the same head, else one with unknown text behind it."""
        for i, row in enumerate(rows):
            fields = row.match(data, start)
            if fields is not None:
                rows.insert(0, rows.pop(i))  # the wording of this build comes first from now on
                return row, fields
        for row in sorted(rows, key=lambda r: -len(r.template)):
            fields = row.match(data, start, loose=True)
            if fields is not None:
                return row, fields
        return None, {}
