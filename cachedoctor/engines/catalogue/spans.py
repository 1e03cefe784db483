"""Finds the holes of recognised lines: which bytes are the server's own words, and which a user may have written.

Reads every line by itself, in the same way as the scanner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import GROUPS, HOLE, Catalogue, Message
from cachedoctor.engines.catalogue.reading import OTHER, Named, furthest

_MAX_SPELLINGS = 4096
"""Spellings of heads that are remembered: they differ in blanks only, and hostile text must not fill the memory."""


class Hole(NamedTuple):
    """A value in a line."""

    name: str
    kind: str
    """The catalogue's word: ``d``, ``path``, ``text`` ..."""
    start: int
    end: int


class RecognisedLine(NamedTuple):
    """A line in which at least the head of a message is recognised. Offsets count in the block."""

    start: int
    message: int
    """Offset at which the message begins, after clock, level, component and function."""
    end: int
    """Offset at which the part that is understood ends."""
    stop: int
    """Offset at which the line ends."""
    row: Message | None
    """None when no row continues from the head as the line does."""
    holes: list[Hole]


class Spans:
    """Reads blocks of whole lines."""

    def __init__(self, catalogue: Catalogue) -> None:
        """``catalogue``: one without a fused pattern, which would take several lines for one."""
        self._catalogue = catalogue
        self._rows: dict[tuple[int, bytes], list[Message]] = {}
        self._kinds: dict[Message, list[tuple[str, str]]] = {}
        self._loose: dict[Message, re.Pattern[bytes]] = {}

    def read(self, data: bytes) -> Iterator[RecognisedLine]:
        """Give the recognised lines of ``data``, which begins with the newline before its first line."""
        for found in self._catalogue.pattern.finditer(data):
            group = found.lastindex or 0
            head = found[group]
            start, at = found.start() + 1, found.end() - len(head)
            stop = data.find(b"\n", found.end())
            stop = len(data) if stop < 0 else stop
            rows = self._candidates(group - 3, head)
            line = self._fit(rows, data, start, at, stop)
            yield line or RecognisedLine(start, at, found.end(), stop, None, [])

    def _candidates(self, group: int, head: bytes) -> list[Message]:
        rows = self._rows.get((group, head))
        if rows is None:
            rows = self._catalogue.candidates(GROUPS[group], head)
            if len(self._rows) < _MAX_SPELLINGS:
                self._rows[group, head] = rows
        return rows

    def _fit(self, rows: list[Message], data: bytes, start: int, at: int, stop: int) -> RecognisedLine | None:
        for row in rows:
            match = row.exact_match(data, at)
            if match is not None:
                return RecognisedLine(start, at, match.end(), stop, row, self._holes(row, match))
        for row in sorted(rows, key=lambda r: -len(r.template)):
            match = self._pattern(row).match(data, at, stop)
            if match is not None:
                return RecognisedLine(start, at, match.end(), stop, row, self._holes(row, match))
        named = furthest(rows, data, at)
        return None if named is None else RecognisedLine(start, at, named[1].end, stop, named[0], _among_others(*named))

    def _pattern(self, row: Message) -> re.Pattern[bytes]:
        pattern = self._loose.get(row)
        if pattern is None:
            pattern = self._loose[row] = re.compile(row.text_pattern())
        return pattern

    def _holes(self, row: Message, match: re.Match[bytes]) -> list[Hole]:
        kinds = self._kinds.get(row)
        if kinds is None:
            named = HOLE.findall(row.template)
            kinds = self._kinds[row] = named[1:] if row.has_func else named
        return [Hole(name, kind, *match.span(i)) for i, (name, kind) in enumerate(kinds, 1)]


def _among_others(row: Message, found: Named) -> list[Hole]:
    """The holes of a line in which pairs stand that are not known, in their order; these have the kind ``OTHER``."""
    kinds = dict(HOLE.findall(row.template))
    holes = [Hole(name, kinds[name], *place) for name, place in found.fields.items()]
    return sorted([*holes, *(Hole("", OTHER, *place) for place in found.others)], key=lambda hole: hole.start)
