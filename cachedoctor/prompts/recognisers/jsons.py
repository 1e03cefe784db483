"""JSON that says the same in other words: order of keys, spacing. Knows JSON; knows no tools and no messages."""

from __future__ import annotations

import json
import re
from typing import Any

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.prompts.recognisers.base import Difference, Recognition, snippet

_REACH = 32_768
"""Code points before the offset in which an enclosing object or array is looked for, and the longest one parsed."""
_LEVELS = 8
"""Enclosing values that are tried, the innermost first."""
_BRACKET = re.compile(r"[{}\[\]]")
_DECODER = json.JSONDecoder()


def json_key_order(d: Difference) -> Recognition | None:
    """Both sides hold the same JSON value around the difference, with its keys in another order."""
    found = _same_value(d)
    if found is None or _dump(found[0]) == _dump(found[1]):
        return None
    a, b = snippet(d)
    return Recognition("json-key-order", a, b, "the same JSON value with its keys in another order")


def json_spacing(d: Difference) -> Recognition | None:
    """Both sides hold the same JSON value around the difference, spaced or escaped in another way."""
    found = _same_value(d)
    if found is None or _dump(found[0]) != _dump(found[1]):
        return None
    a, b = snippet(d)
    blanks = d.rest("a", 1).isspace() or d.rest("b", 1).isspace()
    how, field = ("spaced", "spacing") if blanks else ("written", "escapes")
    return Recognition("json-spacing", a, b, f"the same JSON value {how} in another way", field)


def _same_value(d: Difference) -> tuple[Any, Any] | None:
    start = max(0, d.offset - _REACH)
    for opening in _open_brackets(d.a.text[start : d.offset]):
        values = [parse(p.text[start + opening : d.offset + _REACH]) for p in (d.a, d.b)]
        if None in values:
            continue
        try:
            if _dump(values[0], True) == _dump(values[1], True):
                return values[0], values[1]
        except (RecursionError, ValueError):
            return None
    return None


def _open_brackets(text: str) -> list[int]:
    """Where the values begin that are still open at the end of the text, the innermost first."""
    stack: list[int] = []
    for match in _BRACKET.finditer(text):
        if match.group() in "{[":
            stack.append(match.start())
        elif stack:
            stack.pop()
    return stack[: -_LEVELS - 1 : -1]


def parse(text: str) -> Any:
    """The JSON value at the start of a text, or None."""
    try:
        value, _end = _DECODER.raw_decode(sound_json(text))
    except (ValueError, RecursionError):
        return None
    return value


def _dump(value: Any, sort: bool = False) -> str:
    return json.dumps(value, sort_keys=sort)
