"""Reads a message that ends in ``(name = value, ...)`` by these names, where others stand among them.

Forks print more of a checkpoint than llama-server does: ``(pos_min = 9675, pos_max = 9675, pos_end = 9676, ...)``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from cachedoctor.engines.catalogue.base import Message

OTHER = "other"
"""The kind of a pair that is not known."""
_LINE_MAX = 1 << 10
"""Bytes: no line of this kind is longer."""
_FIELD = r"[A-Za-z_]\w* = \{[A-Za-z_]\w*:[a-z]+\}(?: MiB)?"
_TEMPLATE = re.compile(rf"(?P<words>[^()]+?) \((?P<fields>{_FIELD}(?:, {_FIELD})+)\)")
_PAIR = rb"[A-Za-z_]\w{0,40} *= *[-\w.]{1,24}(?: MiB)?"
_PAIRS = re.compile(rb"[ \t]*\((" + _PAIR + rb"(?:, *" + _PAIR + rb"){1,20})\)[ \t]*(?=\n|\Z)")
_ONE = re.compile(rb"(\w+) *= *([-\w.]+)(?: MiB)?")


class WithOthers(dict[str, Any]):
    """All fields of a message, among others that no known build prints."""


class Place(NamedTuple):
    """Where something stands in the data."""

    start: int
    end: int


class Named(NamedTuple):
    """A message of which every field was found by its name, among others."""

    fields: dict[str, Place]
    """What is printed in each, by the names of the row."""
    others: list[Place]
    """The pairs that are not known, at least one."""
    end: int


class _Shape(NamedTuple):
    """What of a template is words, and what are fields with names."""

    words: re.Pattern[bytes]
    """Of what stands before the fields."""
    names: tuple[str, ...]
    """Of the groups of that."""
    fields: dict[bytes, tuple[str, re.Pattern[bytes]]]
    """The name in the row, and the pattern, of each field by its printed name."""


def by_name(row: Message, data: bytes, start: int) -> Named | None:
    """Find every field of ``row`` in the message at ``start``; None where one is missing, or no other is there.

    A name that stands there twice is no field: lines of two writers run together like that.
    """
    shape = _shape(row)
    words = None if shape is None else shape.words.match(data, start, start + _LINE_MAX)
    listed = None if words is None else _PAIRS.match(data, words.end(), start + _LINE_MAX)
    if shape is None or words is None or listed is None:
        return None
    fields = {name: Place(*words.span(at)) for at, name in enumerate(shape.names, 1)}
    others, seen = [], set()
    for pair in _ONE.finditer(data, *listed.span(1)):
        if pair[1] in seen:
            return None
        seen.add(pair[1])
        name, pattern = shape.fields.get(pair[1], ("", None))
        if pattern is None:
            others.append(Place(*pair.span()))
        elif pattern.fullmatch(pair[2]) is None:
            return None
        else:
            fields[name] = Place(*pair.span(2))
    whole = seen.issuperset(shape.fields)
    return Named(fields, others, listed.end(1) + 1) if whole and others else None


@lru_cache(maxsize=256)
def _shape(row: Message) -> _Shape | None:
    """How the template of a row is made; None where it does not end in named fields."""
    found = _TEMPLATE.fullmatch(row.template)
    if found is None:
        return None
    patterns = {name: pattern for _, name, pattern in row.pieces()}
    named = re.findall(r"(\w+) = \{(\w+):", found["fields"])
    fields = {printed.encode(): (hole, re.compile(patterns[hole])) for printed, hole in named}
    words = Message(row.id, row.component, row.first, row.last, row.levels, found["words"], "")
    return _Shape(re.compile(words.text_pattern()), words.names, fields)


def furthest(rows: list[Message], data: bytes, start: int) -> tuple[Message, Named] | None:
    """The row of which most fields stand in the message, and where; None where none has all of its fields there."""
    end = data.find(b"\n", start)
    if data.find(b"=", start, end if end >= 0 else len(data)) < 0:
        return None  # as nearly every line of an engine that logs no such fields
    found = [(row, named) for row in rows if (named := by_name(row, data, start)) is not None]
    return max(found, key=lambda one: len(one[1].fields), default=None)
