"""Finds the value that changed in a pasted diff of two prompts: a date, a time or an id.

``@@ -3,3 +3,3 @@``, ``-Today's date: Mon Mar 02 2026``, ``+Today's date: Tue Mar 03 2026``. Only the first change of a
diff counts, as a common prefix ends there; a diff of source code is none of prompts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.knowledge.later_pattern import LaterPattern

CHANGED = Message("prompt_changed", "client", 0, 0, "P0", "", "")
"""A value of a prompt changed; of no build, so that it narrows none."""

_HUNK = re.compile(rb"@@ -\d{1,7}(?:,\d{1,7})? \+(?P<place>\d{1,7})(?:,\d{1,7})? @@")
_FILE = re.compile(rb"(?:---|\+\+\+) (?P<path>[^\t\r\n]{1,400})")
_OF_PROMPTS = frozenset({b"", b"txt", b"text", b"json", b"jsonl", b"md", b"log", b"prompt"})
"""Endings of files that hold prompts or bodies."""
_GIT = (b"diff --git ", b"index ", b"Index: ", b"similarity index ")
_LINE_MAX = 1 << 12
_ROWS = 60
"""Lines of a hunk before its first change."""
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?:day|sday|nesday|rsday|urday)?\b,?"
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\b\.?"
_CLOCK = rb"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm]\b)?(?:Z\b| ?[+-]\d\d:?\d\d\b)?"
_DATES = (
    rb"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:T" + _CLOCK + rb")?",
    rb"\d{1,2}[-/.]\d{1,2}[-/.]\d{4}",
    rb"\d{1,2}(?:st|nd|rd|th)?\.? " + _MONTH + rb"(?: \d{4})?",
    _MONTH + rb" \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?",
    _DAY,
    _CLOCK,
)
_KINDS = (
    ("UUID", LaterPattern(rb"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")),
    ("date or time", LaterPattern(rb"\b(?:" + rb"|".join(_DATES) + rb")")),
    ("random id", LaterPattern(rb"\b(?=[0-9a-f]{0,31}\d)(?=[0-9a-f]{0,31}[a-f])[0-9a-f]{8,64}\b")),
)
_STANDS_FOR = b"\x00"


class Change(NamedTuple):
    """The first change of a diff."""

    begin: int
    """Index of the line that begins its hunk."""
    before: int
    """Index of the line of the first prompt."""
    after: int
    """Index of the same line of the second one."""
    kind: str
    was: bytes
    """What changed in it, and nothing else of the prompt."""
    is_now: bytes
    place: int
    """Number of the line in the second prompt."""


def first_change(lines: list[bytes]) -> Change | None:
    """Return the first change of a diff of prompts, if all that differs in it is a value that is new each time."""
    plain = [line[:_LINE_MAX].rstrip(b"\r") for line in lines]
    begin = next((at for at, line in enumerate(plain) if _HUNK.match(line)), None)
    if begin is None or not all(map(_of_prompts, plain[:begin])):
        return None
    end = min(len(lines), begin + _ROWS)
    before = next((at for at in range(begin + 1, end) if plain[at][:1] in (b"-", b"+")), end)
    after = next((at for at in range(before + 1, len(lines)) if plain[at][:1] != b"-"), len(lines))
    hunk = _HUNK.match(plain[begin])
    if hunk is None or after == len(lines) or not (plain[before][:1] == b"-" and plain[after][:1] == b"+"):
        return None  # something was added or dropped: no value that changed
    found = _value(plain[before][1:], plain[after][1:])
    place = int(hunk["place"]) + before - begin - 1
    return None if found is None else Change(begin, before, after, *found, place)


def _of_prompts(line: bytes) -> bool:
    """Whether a line above the first hunk lets it be a diff of prompts."""
    found = _FILE.match(line)
    name = b"" if found is None else re.split(rb"[/\\]", found["path"].strip())[-1]
    return not line.startswith(_GIT) and name.rpartition(b".")[2 if b"." in name else 0].lower() in _OF_PROMPTS


def _value(before: bytes, after: bytes) -> tuple[str, bytes, bytes] | None:
    """(kind, what it was, what it is), where two lines are the same but for values of one kind."""
    for kind, later in _KINDS:
        pattern = later.compiled
        was, is_now = pattern.findall(before), pattern.findall(after)
        same = pattern.sub(_STANDS_FOR, before) == pattern.sub(_STANDS_FOR, after) and len(was) == len(is_now)
        different = [(a, b) for a, b in zip(was, is_now, strict=True) if a != b] if same else []
        if different:
            return kind, b" ".join(a for a, _ in different), b" ".join(b for _, b in different)
    return None
