"""How time and memory grow with one measure of a log at a time.

The processor time of a small log (start-up) is taken off first: it would hide growth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import gen_log
import shapes
from plan import Plan, count_requests, megabytes
from process import Usage, analyze, measure
from table import Row

PART = "linear"
SHARE = 8
"""Logs of equal bytes have the plan's size divided by it."""
STEEP = 1.2
"""Growth exponent above which a row is marked: 1 is linear, 2 quadratic."""
LEAST_SECONDS = 0.2
"""Shorter times, start-up taken off, are noise: no exponent is given."""


class Axis(NamedTuple):
    """What grows."""

    case: str
    """With {} in place of the value."""
    values: tuple[int, ...]
    blocks: Callable[[int, int], Iterator[str]]
    """The log of a value, and of a number of bytes where these are equal."""
    is_of_requests: bool = False
    """Whether time is set against the number of requests, not against the value."""
    is_per_request: bool = False
    """Whether the time of one request is meant, not that of the log."""


def _sizes(era: str) -> Axis:
    return Axis(f"{era}, {{}} x the size", (1, 2, 4, 8), lambda n, size: gen_log.blocks(era, n * size))


def _checkpoints(n: int, size: int) -> Iterator[str]:
    return shapes.blocks(size, checkpoints=n)


def _slots(n: int, size: int) -> Iterator[str]:
    return shapes.blocks(size, slots=n)


def _lives(n: int, size: int) -> Iterator[str]:
    return gen_log.blocks(shapes.ERA, size, lives=n)


AXES = [
    Axis("more, shorter requests ({} checkpoints), equal bytes", (64, 32, 16, 8), _checkpoints, is_of_requests=True),
    Axis("{} slots, equal bytes", (1, 4, 16, 64, 256), _slots),
    Axis("{} checkpoints, time of one request", (1, 8, 32, 256), _checkpoints, is_per_request=True),
    Axis("{} lives of the server, equal bytes", (1, 10, 100, 1000), _lives),
]


def rows(plan: Plan) -> Iterator[Row]:
    """Every axis, from its least value to its greatest."""
    small = plan.log("small", shapes.blocks(20_000))
    start = measure(analyze(small), plan.rounds)
    plan.discard(small)
    for axis in [*map(_sizes, plan.eras), *AXES]:
        yield from _along(axis, plan, start)


class _Point(NamedTuple):
    grown: float
    cost: float
    usage: Usage


def _along(axis: Axis, plan: Plan, start: Usage) -> Iterator[Row]:
    before: _Point | None = None
    for value in axis.values:
        size = plan.size // SHARE
        case = axis.case.format(f"{value:,}")
        name = re.sub(r"\W+", "-", case)
        log = plan.log(f"{name}-{size}", axis.blocks(value, size))
        usage, requests = measure(analyze(log), plan.rounds), count_requests(log)
        net = usage.cpu - start.cpu
        cost = (net if net >= LEAST_SECONDS else math.nan) / (requests if axis.is_per_request else 1)
        point = _Point(requests if axis.is_of_requests else value, cost, usage)
        measured, grew = f"{megabytes(log):,.1f} MB, {requests:,} requests", None
        if before is not None:
            measured += f", {usage.peak / before.usage.peak:.2f} x memory"
            grew = exponent(before.grown, before.cost, point.grown, point.cost)
        meaning = "" if grew is None else "growth exponent of CPU time"
        yield Row(PART, case, usage, measured, grew, meaning, STEEP)
        plan.discard(log)
        before = point


def exponent(grown_from: float, cost_from: float, grown_to: float, cost_to: float) -> float | None:
    """The power of the growth with which the cost grew; None where that is not known."""
    if math.isnan(cost_from) or math.isnan(cost_to) or grown_to <= grown_from:
        return None
    return math.log(cost_to / cost_from) / math.log(grown_to / grown_from)
