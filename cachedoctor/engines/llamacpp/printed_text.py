"""Finds user text that llama-server prints, and the value that changed in a printed diff of two prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from cachedoctor.engines.catalogue.base import STAMP, Message
from cachedoctor.knowledge.late_patterns import late

_STAMP = rb"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3}) "
_COMMON = rb"[ \t]{0,8}" + STAMP
_SLOT = rb"slot ++[^\s:|]*+: *+id ++(?P<slot>\d{1,3}) *+\| *+task ++(?P<task>-?\d{1,18}) *+\| *+"
_OPENS = late(
    _COMMON
    + rb"(?:"
    + _SLOT
    + rb"(?P<side>old|new): \.\.\."
    + rb"|srv +log_server_r\w{0,40}: *request:  "
    + rb"|add_text: "
    + rb"|(?:[^\s:]{1,80}: )?Parsing (?:PEG )?input with format )"
)
_TOKENS = late(_COMMON + _SLOT + rb"(?:[-\d \t]*)(?:\n|\Z)")
_ROW = late(_COMMON + _SLOT)
_CLOCKED = late(_STAMP)
_NEXT_CLOCKED = late(rb"\n" + _STAMP)  # led by a literal, for which sre then scans
ALWAYS = (b"| old: ...",)
"""In each of these lines except ``new: ...``, which follows one."""
AT_DEBUG = (*ALWAYS, b"log_server_r: request:  ", b" D add_text: ", b" input with format ")
"""The same where the server logs at the debug level."""
LINE_END = b"\x1e"
"""In place of the end of a line in a text that was put into one line."""
DEBUG = b" D "
"""In nearly every line at that level, after a clock."""


class Opening(NamedTuple):
    """A line after which text may continue."""

    clock: int | None
    """Microseconds since the start of the server; None if its lines have no clock."""
    side: bytes | None = None
    """``old`` or ``new``, where two prompts diverge."""
    slot: bytes = b""
    task: bytes = b""


def opening(body: bytes) -> Opening | None:
    """Read a line without wrappers; None if no text can continue after it."""
    found = _OPENS.match(body)
    if found is None:
        return None
    return Opening(clock(body), found["side"], found["slot"] or b"", found["task"] or b"")


def clock(body: bytes) -> int | None:
    """Microseconds from the start of the server to a line without wrappers; None without a clock."""
    found = _CLOCKED.match(body)
    return None if found is None else _microseconds(found)


def clocks(lines: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Return offset and clock, in microseconds, of every line with a clock, from the line at ``at`` on."""
    if found := _CLOCKED.match(lines, at):
        yield at, _microseconds(found)
    for found in _NEXT_CLOCKED.finditer(lines, at):
        yield found.start() + 1, _microseconds(found)


def _microseconds(found: re.Match[bytes]) -> int:
    minutes, seconds, millis, micros = map(int, found.groups())
    return ((minutes * 60 + seconds) * 1000 + millis) * 1000 + micros


def ids_of(body: bytes) -> Opening | None:
    """Read a list of token ids, which follow the texts in two lines; None for any other line."""
    found = _TOKENS.match(body)
    return None if found is None else Opening(clock(body), None, found["slot"], found["task"])


def row_of(body: bytes) -> Opening | None:
    """Read which slot's row a line without wrappers is; None for a line of no slot."""
    found = _ROW.match(body)
    return None if found is None else Opening(clock(body), None, found["slot"], found["task"])


CHANGED = Message("prompt_changed", "client", 0, 0, "P0", "", "")
"""A value of a prompt changed; it has no build, so it narrows no build range."""

_HUNK = late(rb"@@ -\d{1,7}(?:,\d{1,7})? \+(?P<place>\d{1,7})(?:,\d{1,7})? @@")
_FILE = late(rb"(?:---|\+\+\+) (?P<path>[^\t\r\n]{1,400})")
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
    ("UUID", late(rb"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")),
    ("date or time", late(rb"\b(?:" + rb"|".join(_DATES) + rb")")),
    ("random id", late(rb"\b(?=[0-9a-f]{0,31}\d)(?=[0-9a-f]{0,31}[a-f])[0-9a-f]{8,64}\b")),
)
_STANDS_FOR = b"\x00"


class PrintedChange(msgspec.Struct, frozen=True):
    """The first change of a diff."""

    begin: int
    """Index of the line that begins its hunk."""
    before: int
    """Index of the line of the first prompt."""
    after: int
    """Index of the same line of the second prompt."""
    kind: str
    was: bytes
    """What changed in it, and nothing else of the prompt."""
    is_now: bytes
    place: int
    """Number of the line in the second prompt."""


def first_change(lines: list[bytes]) -> PrintedChange | None:
    """Return the first change in a diff of prompts if it contains only a value that is new each time."""
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
    return None if found is None else PrintedChange(begin, before, after, *found, place)


def _of_prompts(line: bytes) -> bool:
    """Whether a line above the first hunk lets it be a diff of prompts."""
    found = _FILE.match(line)
    name = b"" if found is None else re.split(rb"[/\\]", found["path"].strip())[-1]
    return not line.startswith(_GIT) and name.rpartition(b".")[2 if b"." in name else 0].lower() in _OF_PROMPTS


def _value(before: bytes, after: bytes) -> tuple[str, bytes, bytes] | None:
    """(kind, what it was, what it is), where two lines are the same but for values of one kind."""
    for kind, later in _KINDS:
        pattern = later
        was, is_now = pattern.findall(before), pattern.findall(after)
        same = pattern.sub(_STANDS_FOR, before) == pattern.sub(_STANDS_FOR, after) and len(was) == len(is_now)
        different = [(a, b) for a, b in zip(was, is_now, strict=True) if a != b] if same else []
        if different:
            return kind, b" ".join(a for a, _ in different), b" ".join(b for _, b in different)
    return None
