"""Finds out which part of a rendered prompt came from which place of the request.

Every text is rendered a second time between two private-use characters that name it. Where the template reacts to them
(it compares, cuts or counts), the places are found by searching the texts instead.
"""

from __future__ import annotations

import json
from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.prompt import PlacedSpan

LIMIT = 0xFFFE
"""Marks that fit into a private-use plane."""
MAX_MISSES = 200
"""Texts that may be missing from the rendered prompt before the search gives up; bounds its time."""
TELLING = 8
"""Code points from which a text is searched for; shorter ones occur by chance."""

_START, _END = 0xF0000, 0x100000
_MARK = late("([\U000f0000-\U0010fffd])")
# Templates look for these at the start of a message, or split it there: they must stay outside the marks.
_TAGS = late(r"(</?(?:think|thinking|tool_response|tool_call|tool_calls|seed:think)>|\[/?THINK\])")
_STEP = late(r"\[\d+\]|[^.\[\]]+")


class Marker:
    """Puts marks around texts and remembers their places."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(self, text: str, place: str) -> str:
        """Mark a text, leaving its outer white space and known tags outside for templates that trim and split."""
        if len(text) < 2:
            return text
        pieces = _TAGS.split(text)
        return "".join(piece if index % 2 else self._piece(piece, place) for index, piece in enumerate(pieces))

    def wrap(self, text: str, place: str) -> str:
        """Mark a text as a whole."""
        if len(self.places) >= LIMIT:
            return text
        number = len(self.places)
        self.places.append(place)
        return f"{chr(_START + number)}{text}{chr(_END + number)}"

    def dump(self, value: Any, origins: dict[int, str]) -> str:
        """``json.dumps(value, ensure_ascii=False)`` with marks around the objects and arrays of known places."""
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            items = (f"{json.dumps(k, ensure_ascii=False)}: {self.dump(v, origins)}" for k, v in value.items())
            text = f"{{{', '.join(items)}}}"
        elif isinstance(value, list):
            text = f"[{', '.join(self.dump(item, origins) for item in value)}]"
        else:
            return json.dumps(value, ensure_ascii=False)
        place = origins.get(id(value))
        return text if place is None else self.wrap(text, place)

    def _piece(self, text: str, place: str) -> str:
        inner = text.strip()
        if not inner:
            return text
        at = text.index(inner)
        return text[:at] + self.wrap(inner, place) + text[at + len(inner) :]


def markable(text: str) -> bool:
    """Whether a rendered prompt has no private-use characters of its own."""
    return text.isascii() or not _MARK.search(text)


def read(marked: str, places: list[str]) -> tuple[str, list[PlacedSpan]]:
    """The text without its marks, and a span for every stretch of it that has a place."""
    pieces = _MARK.split(marked)
    closed = {ord(mark) - _END for mark in pieces[1::2] if ord(mark) >= _END}
    text: list[str] = []
    spans: list[PlacedSpan] = []
    stack: list[int] = []
    at = 0
    for index, piece in enumerate(pieces):
        if not index % 2:
            text.append(piece)
            if piece and stack:
                spans.append(PlacedSpan(at, at + len(piece), places[stack[-1]]))
            at += len(piece)
            continue
        code = ord(piece)
        number = code - (_END if code >= _END else _START)
        if code < _END and number in closed and number < len(places):
            stack.append(number)
        elif code >= _END and number in stack[-32:]:
            del stack[len(stack) - 1 - stack[::-1].index(number) :]
    return "".join(text), _filled(spans)


def search(text: str, parts: list[tuple[str, str]]) -> list[PlacedSpan]:
    """Spans of the parts (place, text) that occur in the text, searched for in their order."""
    found: list[PlacedSpan] = []
    at = misses = 0
    for place, part in parts:
        part = part.strip()
        if len(part) < TELLING:
            continue
        start = text.find(part, at)
        if start < 0 and len(part) >= 4 * TELLING:
            start = text.find(part)  # a template may render the system prompt before the tools
        if start < 0:
            misses += 1
            if misses > MAX_MISSES:
                break
            continue
        found.append(PlacedSpan(start, start + len(part), place))
        at = max(at, start + len(part))
    found.sort(key=lambda span: (span.start, -span.end))
    spans: list[PlacedSpan] = []
    for span in found:
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    return _filled(spans)


def _filled(spans: list[PlacedSpan]) -> list[PlacedSpan]:
    """The spans, and between two of them what the template wrote: it belongs to what they share, or opens the later."""
    filled: list[PlacedSpan] = []
    for span in spans:
        before = filled[-1] if filled else None
        if before is not None and before.end < span.start:
            filled.append(PlacedSpan(before.end, span.start, _between(before.place, span.place)))
        elif before is not None and before.place == span.place and before.end == span.start:
            before.end = span.end
            continue
        filled.append(span)
    return filled


def _between(a: str, b: str) -> str:
    """The path that two places share; the message that the second is in when that is only the list of messages."""
    if a == b:
        return a
    later = _STEP.findall(b)
    steps: list[str] = []
    for x, y in zip(_STEP.findall(a), later, strict=False):
        if x != y:
            break
        steps.append(x)
    if len(steps) < 2 and steps not in (["tools"], ["system"]):
        steps = later[:2]
    return "".join(step if step.startswith("[") or not index else f".{step}" for index, step in enumerate(steps))
