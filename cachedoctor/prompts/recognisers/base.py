"""What every recogniser is given and gives back."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.recognisers.turns import MARKER

MAX_SHOWN = 80
"""Code points of a differing value that are shown."""
LINE = 400
"""Code points of a line that are checked, on each side of the offset."""
ALIKE = 24
"""Code points after a value that must agree for the value to be the whole difference."""

_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}"
# Other values after the first one differ with it: a date and then a time, a counter and then a percentage.
_VALUES = late(rf"(?<![^\W\d])[^\W\d]*\d\w*|\b(?:{_DAY}|{_MONTH}|[AaPp][Mm])\b")
_WORD = late(r"[\w./\\@-]{0,40}\Z")
_LABEL = late(r"([A-Za-z_][\w .\-]{0,40}?)[\"'`*]{0,3}\s*[:=]\s*[\"'`*(\[]?\Z")


class Recognition(msgspec.Struct):
    """What a recogniser says."""

    kind: str
    a: str
    b: str
    explanation: str
    field: str | None = None
    sure: bool = True


class FirstDifference:
    """Two prompts and the first code point at which they differ."""

    def __init__(self, a: Prompt, b: Prompt, offset: int, same_text: bool = False) -> None:
        self.a = a
        self.b = b
        self.offset = max(0, min(offset, len(a.text), len(b.text)))
        self.same_text = same_text or a.text == b.text
        self.memo: dict[str, object] = {}
        """What several recognisers need and only one must work out."""

    @cached_property
    def places(self) -> list[str]:
        """Places in the request at the offset, of both sides; the nearest ones if the template's own text differs."""
        found = [place for prompt in (self.a, self.b) if (place := prompt.place_at(self.offset)) is not None]
        if found:
            return found
        near: list[str] = []
        for prompt in (self.a, self.b):
            at = bisect_right(prompt.spans, self.offset, key=lambda span: span.start)
            near += [span.place for span in prompt.spans[max(0, at - 1) : at + 1]]
        return near

    @cached_property
    def line_start(self) -> int:
        """Where the line of the offset begins; both sides agree there."""
        return max(self.a.text.rfind("\n", 0, self.offset) + 1, self.offset - LINE)

    @cached_property
    def before(self) -> str:
        """The line of the offset up to it."""
        return self.a.text[self.line_start : self.offset]

    def rest(self, side: str, limit: int = LINE) -> str:
        """What follows from the offset on, in ``a`` or ``b``."""
        prompt = self.a if side == "a" else self.b
        return prompt.text[self.offset : self.offset + limit]

    def line(self, side: str) -> str:
        """The whole line of the offset, in ``a`` or ``b``."""
        return self.before + self.rest(side).partition("\n")[0]


Recogniser = Callable[[FirstDifference], Recognition | None]


def covering(d: FirstDifference, pattern: re.Pattern[str]) -> tuple[re.Match[str], re.Match[str]] | None:
    """The matches that hold the offset on both sides and begin at the same place."""
    left = max(0, d.offset - LINE)
    at = d.offset - left
    found = [
        next((m for m in pattern.finditer(p.text[left : d.offset + LINE]) if m.start() <= at <= m.end()), None)
        for p in (d.a, d.b)
    ]
    a, b = found
    if a is None or b is None or a.start() != b.start() or a.group() == b.group():
        return None
    # A value may be the beginning of the other one, but then it must not be empty.
    return (a, b) if max(a.end(), b.end()) > at or a.start() < at else None


def goes_on_alike(d: FirstDifference, a: str, b: str, need: int = ALIKE) -> bool:
    """Whether the texts agree after the values ``a`` and ``b``, which hold the offset, but for more such values."""
    start = value_start(d, a, b)
    rest_a, rest_b = (
        _VALUES.sub("#", prompt.text[start + len(value) : start + len(value) + 6 * need])[:need]
        for prompt, value in ((d.a, a), (d.b, b))
    )
    length = min(len(rest_a), len(rest_b))
    return rest_a[:length] == rest_b[:length]


def value_start(d: FirstDifference, a: str, b: str) -> int:
    """Where two values begin that are at the same place and first differ at the offset."""
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return d.offset - shared


def label(d: FirstDifference, start: int) -> str | None:
    """The word before a colon or equals sign before a value: ``Tokens used``, ``request_id``."""
    match = _LABEL.search(d.a.text[max(d.line_start, start - 60) : start])
    return match.group(1).strip() if match else None


def snippet(d: FirstDifference, raw: bool = False) -> tuple[str, str]:
    """The differing words of the line, the smallest that can be shown when no value is known.

    Markers of the chat template end the words, unless ``raw``.
    """
    match = _WORD.search(d.before)
    word = match.group() if match else ""
    a, b = (_words(d.rest(side), raw) for side in "ab")
    if not raw and a == b:  # a line ends here on one side, and on the other one too or a message does
        a, b = (_words(d.rest(side).lstrip(), raw) for side in "ab")
        return snippet(d, True) if a == b else (shown(a), shown(b))
    a, b = word + a, word + b
    common, limit = 0, min(len(a), len(b)) - len(word)
    while common < limit and a[-1 - common] == b[-1 - common]:
        common += 1
    # A suffix that begins inside a word would show half of it.
    while common and not a[len(a) - common].isspace():
        common -= 1
    return shown(a[: len(a) - common]), shown(b[: len(b) - common])


def _words(text: str, raw: bool) -> str:
    line = text.partition("\n")[0]
    marker = None if raw else MARKER.search(line)
    return line[: marker.start()] if marker else line


def shown(text: str) -> str:
    """A value, cut to what is shown."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
