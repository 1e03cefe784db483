"""JSON compared exactly, and where its values stand, so that one can change and all other bytes stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cachedoctor.knowledge.late_patterns import late


class Number(msgspec.Struct, frozen=True):
    """A number as it is written; equal to nothing but a number of the same digits."""

    digits: str


def decode(text: str) -> Any:
    """The value that a whole text is; raises ValueError where it is not JSON, or has a key twice."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at ``start``, and the offset after it; raises ValueError as ``decode`` does."""
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode(value: Any) -> str:
    """One text for all values that are equal: keys sorted, numbers as they were written.

    Raises:
        ValueError: it is nested too deeply.
    """
    try:
        return _encoded(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _encoded(value: Any) -> str:
    if isinstance(value, Number):
        return value.digits
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_encoded(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    return json.dumps(value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_int=Number, parse_float=Number, parse_constant=_refuse)


_BLANK = late(r"[ \t\r\n]*")
_ESCAPE = late(r"\\(?:u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)")
"""One character of a string that is written with several; two halves of a surrogate pair are one."""


class JsonSpan(NamedTuple):
    """A value and where it stands."""

    start: int
    end: int
    """Offset after its last character."""
    value: Any
    """As ``exact_json`` gives it."""


class TextEdit(NamedTuple):
    """A piece of a text and what replaces it."""

    start: int
    end: int
    text: str


def members(text: str, start: int) -> dict[str, JsonSpan]:
    """Values of the object that begins at ``start``; raises ValueError where it is none, or names one key twice."""
    found: dict[str, JsonSpan] = {}
    for key, value in _parts(text, start, "{", "}"):
        if not isinstance(key, str) or key in found:
            raise ValueError("no object with distinct keys")
        found[key] = value
    return found


def items(text: str, start: int) -> list[JsonSpan]:
    """Values of the array that begins at ``start``; raises ValueError where it is none."""
    return [value for _, value in _parts(text, start, "[", "]")]


def top(text: str) -> dict[str, JsonSpan]:
    """Values of the object that a whole text is; raises ValueError where it is none, or more comes after it."""
    start = _after(text, 0)
    found = members(text, start)
    closing = _after(text, max((value.end for value in found.values()), default=start + 1))
    if _after(text, closing + 1) != len(text):
        raise ValueError("more than one value")
    return found


def applied(text: str, edits: list[TextEdit]) -> str:
    """Give the text with its edits, which must not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def inside(text: str, string: JsonSpan, offsets: list[int]) -> list[int]:
    """Where characters of a string are in the text; ``offsets`` in the string, ascending, its end among them."""
    found, shift = [], string.start + 1
    escapes = _ESCAPE.finditer(text, string.start + 1, string.end - 1)
    escape = next(escapes, None)
    for offset in offsets:
        while escape is not None and escape.start() < shift + offset:
            shift += escape.end() - escape.start() - 1
            escape = next(escapes, None)
        found.append(shift + offset)
    return found


def _parts(text: str, start: int, opening: str, closing: str) -> Iterator[tuple[Any, JsonSpan]]:
    """Each value of a container, with its key where that is an object."""
    if text[start : start + 1] != opening:
        raise ValueError("another kind of value")
    key: Any = None
    at = _after(text, start + 1)
    while text[at : at + 1] != closing:
        if opening == "{":
            name = _value(text, at)
            key, at = name.value, _after(text, name.end)
            if text[at : at + 1] != ":":
                raise ValueError("no JSON")
            at = _after(text, at + 1)
        found = _value(text, at)
        yield key, found
        at = _after(text, found.end)
        if text[at : at + 1] == ",":
            at = _after(text, at + 1)
            if text[at : at + 1] == closing:
                raise ValueError("no JSON")
        elif text[at : at + 1] != closing:
            raise ValueError("no JSON")


def _value(text: str, start: int) -> JsonSpan:
    value, end = decode_at(text, start)
    return JsonSpan(start, end, value)


def _after(text: str, start: int) -> int:
    """Offset after the blanks at ``start``."""
    found = _BLANK.match(text, start)
    return start if found is None else found.end()
