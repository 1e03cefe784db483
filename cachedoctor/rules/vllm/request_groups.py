"""Whether requests fall into two groups, one of which computes nearly its whole prompt: what an average rate hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cachedoctor.model import Bucket, Counters

_LEAST = 20
"""Requests before their distribution says anything."""
_GROUP = 0.2
"""Share of the requests that each group must have."""
_GAP = 2
"""Bars between the groups that are next to empty; a bar ends at two to two and a half times the one before."""
_EMPTY = 0.02
"""Share of the requests up to which a bar counts as empty."""


class Groups(NamedTuple):
    """Two groups of requests."""

    low: int
    """Requests that computed little."""
    low_most: float
    """Tokens that each of them computed at most."""
    high: int
    """Requests that computed nearly all of their prompt."""
    high_least: float
    """Tokens that each of them computed at least."""


def of(counted: Counters) -> Groups | None:
    """Return the groups in the histograms of a dump of /metrics; None where there are none."""
    bars, prompts = counted.computed_per_request, counted.prompt_per_request
    total = sum(bar.requests for bar in bars)
    if total < _LEAST or len(prompts) != len(bars):
        return None
    for at in range(1, len(bars) - _GAP):
        behind = at + _GAP
        if any(bar.requests > _EMPTY * total for bar in bars[at:behind]):
            continue
        low, high = _sum(bars[:at]), _sum(bars[behind:])
        whole = _sum(prompts[behind : _last(bars) + 2])  # the prompt of a request is in its bar or the next
        edge = bars[at - 1].most, bars[behind - 1].most
        if min(low, high) >= _GROUP * total and whole >= high and edge[0] is not None and edge[1] is not None:
            return Groups(low, edge[0], high, edge[1])
    return None


def _sum(bars: Sequence[Bucket]) -> int:
    return sum(bar.requests for bar in bars)


def _last(bars: Sequence[Bucket]) -> int:
    """Index of the last bar that is not empty."""
    return max((at for at, bar in enumerate(bars) if bar.requests), default=0)
