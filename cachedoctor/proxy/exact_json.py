"""JSON whose values are equal only where the JSON is: types, digits as written, no key twice. Knows JSON only.

Python's own values will not do: there ``true`` equals ``1``, ``1.0`` equals ``1``, ``1e400`` becomes infinity, and of
two values with one key the first is lost.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Number(msgspec.Struct, frozen=True):
    """A number as it is written; equal to nothing but a number of the same digits."""

    digits: str


def decode(text: str) -> Any:
    """The value that a whole text is; raises ValueError where it is no JSON, or has a key twice."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at ``start``, and the offset behind it; raises ValueError as ``decode`` does."""
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
        raise ValueError("an object names one key twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_int=Number, parse_float=Number, parse_constant=_refuse)
