"""What the requests of one report add up to, and how certain a difference of two ratios is."""

from __future__ import annotations

import hashlib
import math
import random
from array import array
from collections.abc import Iterator, Sequence
from statistics import NormalDist, median
from typing import NamedTuple

import msgspec

from cachedoctor.model import Counted, Report, RequestRow, counted

FEWEST = 5
"""Conversations on each side below which no interval is given: it would be wrong too often (docs/usage/compare.md)."""
_DRAWS = 2000
_BINS = 400
"""Above this number, conversations are put together at random: the time of a draw does not grow with them."""
_SEED = 20_480
_TAIL = 0.025
"""Probability beyond a 95 % interval on each side."""
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t that 2.5 % exceed, for 1, 2, 3 ... degrees of freedom; from 30 on the normal distribution will do."""


class RatioTerms(NamedTuple):
    """What one conversation adds to both sums of a ratio."""

    upper: float
    lower: float


class Interval(NamedTuple):
    """Where the difference lies, in 95 of 100 such comparisons."""

    low: float
    high: float


def ratio(parts: Sequence[RatioTerms]) -> float | None:
    """Return the sum by the sum, not the mean of ratios; None where nothing was counted."""
    lower = math.fsum(part.lower for part in parts)
    return math.fsum(part.upper for part in parts) / lower if lower else None


def difference(before: Sequence[RatioTerms], after: Sequence[RatioTerms]) -> Interval | None:
    """Return the 95 % interval of the ratio after minus the ratio before; None with too few conversations.

    The same numbers always give the same interval.
    """
    before, after = _telling(before), _telling(after)
    fewest = min(len(before), len(after))
    if fewest < FEWEST:
        return None
    chance = random.Random(_SEED)  # noqa: S311  # no secret: it must be the same each time
    old, new = _drawn(_binned(before, chance), chance), _drawn(_binned(after, chance), chance)
    return _middle([b - a for a, b in zip(old, new, strict=True)], fewest)


def interval(parts: Sequence[RatioTerms]) -> Interval | None:
    """Return the 95 % interval of one ratio; None with too few conversations."""
    parts = _telling(parts)
    if len(parts) < FEWEST:
        return None
    chance = random.Random(_SEED)  # noqa: S311  # no secret: it must be the same each time
    return _middle(_drawn(_binned(parts, chance), chance), len(parts))


def _middle(found: list[float], fewest: int) -> Interval:
    found = sorted(found)
    out = min(len(found) - 1, round(_tail(fewest) * len(found)))
    return Interval(found[out], found[-1 - out])


def _telling(parts: Sequence[RatioTerms]) -> list[RatioTerms]:
    return [part for part in parts if part.lower]


def _tail(count: int) -> float:
    """Share to leave out on each side; draws of few conversations scatter too little, so that less is left out."""
    t = _T[count - 2] if count - 2 < len(_T) else -NormalDist().inv_cdf(_TAIL)
    return NormalDist().cdf(-t * math.sqrt(count / (count - 1)))


def _binned(parts: list[RatioTerms], chance: random.Random) -> list[RatioTerms]:
    if len(parts) <= _BINS:
        return parts
    shuffled = chance.sample(parts, len(parts))
    bins = [shuffled[at::_BINS] for at in range(_BINS)]
    return [RatioTerms(math.fsum(p.upper for p in some), math.fsum(p.lower for p in some)) for some in bins]


def _drawn(parts: list[RatioTerms], chance: random.Random) -> list[float]:
    """Ratios of as many conversations, drawn at random, some of them several times."""
    found = []
    for _ in range(_DRAWS):
        drawn = chance.choices(parts, k=len(parts))
        found.append(sum(part.upper for part in drawn) / sum(part.lower for part in drawn))
    return found


class Amounts(msgspec.Struct, gc=False):
    """Sums over requests of which prompt and reuse are known."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    processed: int = 0
    timed: int = 0
    """Requests with a known prompt time."""
    ms: float = 0.0
    ms_prompt: int = 0
    """Prompt tokens of these; read by the name that ``metrics`` gives."""
    ms_processed: int = 0

    def add(self, found: Counted, ms: float | None) -> None:
        """Count a request and its prompt time."""
        processed = found.processed or 0
        self.requests += 1
        self.prompt += found.prompt
        self.cached += found.cached
        self.processed += processed
        if ms is not None:
            self.timed += 1
            self.ms += ms
            self.ms_prompt += found.prompt
            self.ms_processed += processed


_COUNTED = ("session", "thread", "turn", "prompt_tokens", "cached_tokens", "processed_tokens", "prompt_ms")
"""What of a request is counted here."""


class Tally:
    """Counts the requests of a report."""

    def __init__(self, report: Report) -> None:
        self.requests = self.unknown = 0
        self.all = Amounts()
        self.rows = 0
        """Requests and children of ``n > 1`` requests: findings count both."""
        self._lengths = array("q")
        self._digest = hashlib.blake2b(digest_size=16)
        self._conversations: dict[tuple[int, int], tuple[Amounts, Amounts]] = {}
        for row in report.requests:
            self.rows += 1
            if row.parent is None:
                self._add(row)

    def _add(self, row: RequestRow) -> None:
        self.requests += 1
        self._digest.update(repr([getattr(row, name) for name in _COUNTED]).encode())
        found = counted(row)
        if found is None:
            self.unknown += 1
            return
        self._lengths.append(found.prompt)
        # One that belongs to no conversation is one of its own: no thread has a negative number.
        key = (row.session, row.thread if row.thread is not None else -1 - row.index)
        both = self._conversations.get(key)
        if both is None:
            both = self._conversations[key] = (Amounts(), Amounts())
        for amounts in (self.all, both[0], *([both[1]] if row.turn else [])):
            amounts.add(found, row.prompt_ms)

    def equals(self, other: Tally) -> bool:
        """Whether both are of the same requests, one by one."""
        return self._digest.digest() == other._digest.digest()

    @property
    def conversations(self) -> int:
        """How many there are among the requests that are known."""
        return len(self._conversations)

    @property
    def median_length(self) -> float | None:
        """Median of the prompts' lengths, tokens."""
        return median(self._lengths) if self._lengths else None

    def parts(self, upper: str, lower: str, *, later: bool = False) -> Iterator[RatioTerms]:
        """Yield two of the sums of every conversation, ``later`` without its first request."""
        for both in self._conversations.values():
            sums = both[later]
            yield RatioTerms(getattr(sums, upper), getattr(sums, lower))
