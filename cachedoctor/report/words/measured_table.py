"""Tables of what several engines or periods of one server measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from cachedoctor.model import BatchPeriod, SamplePeriod, Session
from cachedoctor.report.words.numbers import number, percent


class Heading(NamedTuple):
    """What is above a column."""

    name: str
    unit: str = ""


class MeasuredCells(NamedTuple):
    """The name of a row, and its cells."""

    name: str
    cells: Sequence[str]


MOST = 6
"""Maximum rows; if there are more periods, the largest ones."""
_NAMED = 3
"""Servers with the lowest hit rates that are named."""
_SINCE = {"start": " since the start", "reset": " since a reset of the cache", "log": ""}
_UNKNOWN = "unknown"
_P = TypeVar("_P", SamplePeriod, BatchPeriod)


class Grid(NamedTuple):
    """A table: what is above the names of its rows, the columns, the rows, and how many are left out."""

    key: str
    headings: list[Heading]
    rows: list[MeasuredCells]
    more: int


def rate(share: float) -> str:
    """Write a share that the log rounds: its 0 may be a little more."""
    return f"{100 * share:.1f} %"


def begun(period: SamplePeriod | BatchPeriod) -> str:
    """Say what began a period; empty if the log does not show it."""
    return _SINCE[period.since]


def of_intervals(periods: Sequence[SamplePeriod]) -> Grid:
    """Return a row for each engine and each reset of its cache."""
    shown = _largest(periods, lambda p: p.busy)
    cells: list[tuple[Heading, list[str | None]]] = [
        (Heading("intervals", "busy"), [f"{number(p.busy)} ({number(p.seconds)} s)" for p in shown]),
        (Heading("hit rate", "at the end"), [_rate(p.last_rate) for p in shown]),
        (Heading("hit rate", "from, to"), [_range(p.least_rate, p.most_rate) for p in shown]),
        (Heading("external", "at the end"), [_rate(p.last_external_rate) for p in shown]),
        (Heading("computed", "~ tokens"), [_number(p.computed_tokens) for p in shown]),
        (Heading("prompts", "~ tokens"), [_number(p.prompt_tokens) for p in shown]),
        (Heading("KV held", "up to"), [_rate(p.kv_usage) for p in shown]),
    ]
    return _grid("engine", [_named(p.engine, p) for p in shown], cells, len(periods) - len(shown))


def of_batches(periods: Sequence[BatchPeriod]) -> Grid:
    """Return a row for each rank and each flush of its cache."""
    shown = _largest(periods, lambda p: p.batches)
    cells: list[tuple[Heading, list[str | None]]] = [
        (Heading("batches"), [number(p.batches) for p in shown]),
        (Heading("reused", "tokens"), [number(p.cached_tokens) for p in shown]),
        (Heading("computed", "tokens"), [number(p.new_tokens) for p in shown]),
        (Heading("reused", "share"), [_share(p) for p in shown]),
        (Heading("KV used", "up to"), [_rate(p.token_usage) for p in shown]),
        (Heading("SWA used", "up to"), [_rate(p.swa_usage) for p in shown]),
        (Heading("Mamba used", "up to"), [_rate(p.mamba_usage) for p in shown]),
        (Heading("retracted", "requests"), [number(p.retracted) for p in shown]),
    ]
    return _grid("rank", [_named(p.rank, p) for p in shown], cells, len(periods) - len(shown))


def _largest(periods: Sequence[_P], size: Callable[[_P], int]) -> list[_P]:
    """Those with most in them, in the order of the log."""
    kept = sorted(range(len(periods)), key=lambda at: -size(periods[at]))[:MOST]
    return [periods[at] for at in sorted(kept)]


def _named(name: str | None, period: SamplePeriod | BatchPeriod) -> str:
    return (name or "unnamed") + (f", reset, line {period.first_line:,}" if period.since == "reset" else "")


def _grid(key: str, names: list[str], columns: list[tuple[Heading, list[str | None]]], more: int) -> Grid:
    """Leave out what the log shows nowhere."""
    told = [(heading, cells) for heading, cells in columns if any(cell is not None for cell in cells)]
    rows = [MeasuredCells(name, [cells[at] or _UNKNOWN for _, cells in told]) for at, name in enumerate(names)]
    return Grid(key, [heading for heading, _ in told], rows, more)


def _rate(share: float | None) -> str | None:
    return None if share is None else rate(share)


def _range(least: float | None, most: float | None) -> str | None:
    return None if least is None or most is None else f"{rate(least)} to {rate(most)}"


def _number(tokens: int | None) -> str | None:
    return None if tokens is None else number(tokens)


def _share(period: BatchPeriod) -> str | None:
    whole = period.cached_tokens + period.new_tokens
    return percent(period.cached_tokens, whole) if whole else None


def lowest(found: Sequence[tuple[str, Session]]) -> str:
    """Give the range of the hit rates of several servers, and the lowest ones; empty for fewer than three."""
    ends = [
        (period.last_rate, name)
        for name, session in found
        for period in session.periods
        if isinstance(period, SamplePeriod) and period.busy and period.last_rate is not None
    ]
    if len({name for _, name in ends}) <= _NAMED:
        return ""
    ends.sort(key=lambda end: end[0])
    low = ", ".join(f"{name} {rate(share)}" for share, name in ends[:_NAMED])
    return f"{rate(ends[0][0])} to {rate(ends[-1][0])} at the end; lowest: {low}"
