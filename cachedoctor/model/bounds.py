"""Numbers and words of a report: how large they may be, and what the contract promises of them.

``ge`` and ``le`` are checked where JSON is read: sums of such numbers stay exact and overflow nothing. ``contract`` is
what the schemas say instead (scripts/make-schemas); it is narrower, and nobody checks it while reading.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

_Number = TypeVar("_Number", int, float)


class NumberRange(msgspec.Struct, frozen=True):
    """The values that a number of one kind can have, both ends included."""

    least: float
    most: float

    def of(self, value: _Number | None) -> _Number | None:
        """Return ``value``, or None if it is out of range (nan, inf, -5 tokens)."""
        return value if value is not None and self.least <= value <= self.most else None


# What is believed where a log, a dump or a response is read. Sums of such numbers stay below 2**63.
COUNT = NumberRange(0, 9_999_999_999)
"""Tokens, requests, blocks, checkpoints: ten digits hold every number of 32 bits."""
POSITIVE = NumberRange(1, COUNT.most)
"""Context tokens, slots: counts that are at least 1."""
SHARE = NumberRange(0.0, 1.0)
PERCENT = NumberRange(0.0, 100.0)
MS = NumberRange(0.0, 1e10)
"""Milliseconds of one request: 115 days."""
MIB = NumberRange(0.0, 1e9)
"""MiB of one state, cache or model."""
RATE = NumberRange(0.0, 1e9)
"""Tokens per second."""
AMOUNT = NumberRange(0.0, 1e15)
"""Numbers with a fraction of any other kind."""

NUMBERS = frozenset({"count", "n", "slot", "task", "d", "share", "keep", "ms", "mib", "percent", "rate", "f"})
"""Kinds of placeholders in the catalogue that hold only a decimal number."""

MOST = 1 << 53
"""Tokens, lines, positions of one request."""
LONGEST = 1e15
"""Milliseconds of one request."""

_FROM_0 = {"contract": {"minimum": 0}}
_FROM_1 = {"contract": {"minimum": 1}}
_FROM_MINUS_1 = {"contract": {"minimum": -1}}

Count = Annotated[int, Meta(ge=-MOST, le=MOST, extra_json_schema=_FROM_0)]
Positive = Annotated[int, Meta(ge=-MOST, le=MOST, extra_json_schema=_FROM_1)]
"""A build number, or a count that is at least 1."""
SlotId = Annotated[int, Meta(ge=-MOST, le=MOST, extra_json_schema=_FROM_MINUS_1)]
Position = Annotated[int, Meta(ge=-MOST, le=MOST, extra_json_schema={"contract": {}})]
"""Position of a token in the memory of a slot."""
Ms = Annotated[float, Meta(ge=0, le=LONGEST, extra_json_schema=_FROM_0)]
Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, extra_json_schema=_FROM_0)]
"""An identifying number, or a sum."""
LineNumber = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, extra_json_schema=_FROM_1)]
TaskId = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, extra_json_schema=_FROM_MINUS_1)]
LongMs = Annotated[float, Meta(ge=0, le=1e30, extra_json_schema=_FROM_0)]
"""A sum of times."""
Amount = Annotated[int, Meta(extra_json_schema=_FROM_0)]
"""Number of tokens, requests and the like, as a log prints it."""
Rate = Annotated[float, Meta(extra_json_schema=_FROM_0)]
Share = Annotated[float, Meta(extra_json_schema={"contract": {"minimum": 0, "maximum": 1}})]

Text = Annotated[str, Meta(extra_json_schema={"contract": {"minLength": 1}})]
Code = Annotated[str, Meta(extra_json_schema={"contract": {"pattern": "^CD[0-9]{3}$"}})]
Name = Annotated[str, Meta(extra_json_schema={"contract": {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}})]
Url = Annotated[str, Meta(extra_json_schema={"contract": {"format": "uri"}})]
