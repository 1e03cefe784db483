"""The numbers by which two reports are compared, for logs with and without requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from cachedoctor.doctor.compare import tally as bootstrap
from cachedoctor.doctor.compare.tally import FEWEST, Interval, RatioTerms, Tally
from cachedoctor.model import CacheSample, Direction, Measure, Piece, PrefillBatch, Report, SamplePeriod

_SMALL = 0.01
"""One percentage point of a share, or one per cent of another number: a smaller difference counts as none."""

_NOUNS: dict[Piece, tuple[str, str]] = {
    "conversation": ("conversation", "conversations"),
    "response": ("run of responses", "runs of responses"),
    "metrics": ("period of /metrics", "periods of /metrics"),
    "batch": ("run of prefill batches", "runs of prefill batches"),
    "interval": ("run of intervals", "runs of intervals"),
    "rate": ("engine with a hit rate", "engines with a hit rate"),
}
"""One, and several."""


class _Kind(NamedTuple):
    name: str
    unit: str
    scope: Literal["all", "later"]
    good: Literal["higher", "lower"]
    upper: str
    lower: str
    times: float = 1.0


_KINDS = (
    _Kind("reuse", "share", "later", "higher", "cached", "prompt"),
    _Kind("reuse", "share", "all", "higher", "cached", "prompt"),
    _Kind("computed per request", "tokens", "all", "lower", "processed", "requests"),
    _Kind("prompt time per request", "ms", "all", "lower", "ms", "timed"),
    _Kind("prompt time per 1,000 prompt tokens", "ms", "all", "lower", "ms", "ms_prompt", 1000),
    _Kind("prompt time per 1,000 computed tokens", "ms", "all", "lower", "ms", "ms_processed", 1000),
)


def measures(before: Tally, after: Tally) -> list[Measure]:
    """Compare every number; the first one decides.

    That is the reuse of what follows in a conversation, as a first request has little to reuse whatever the server
    does; where these are too few, it is the reuse of all.
    """
    found = [_measure(kind, before, after) for kind in _KINDS]
    if found[0].low is None and found[1].low is not None:
        found[0], found[1] = found[1], found[0]
    return found


def compare_measured(before: Measured, after: Measured) -> list[Measure]:
    """Compare the reuse of two servers whose logs have no requests."""
    kind = _KINDS[1]
    return [_compared(kind, before.terms, after.terms, before.piece, before == after)]


def _measure(kind: _Kind, before: Tally, after: Tally) -> Measure:
    old, new = ([part for part in _parts(kind, tally) if part.lower] for tally in (before, after))
    return _compared(kind, old, new, "conversation", before.equals(after))


def _compared(kind: _Kind, old: list[RatioTerms], new: list[RatioTerms], piece: Piece, equal: bool) -> Measure:
    was, now = bootstrap.ratio(old), bootstrap.ratio(new)
    change = None if was is None or now is None else now - was
    interval = None if change is None else bootstrap.difference(old, new)
    verdict, why = _verdict(kind, was, change, interval, (len(old), len(new)), piece)
    if change == 0 and equal:
        verdict, why = "same", "both sides have the same requests"
    low, high = interval or (None, None)
    return Measure(
        kind.name,
        kind.unit,
        kind.scope,
        kind.good,
        was,
        now,
        change,
        low,
        high,
        len(old),
        len(new),
        verdict,
        why,
        piece,
    )


def _parts(kind: _Kind, tally: Tally) -> list[RatioTerms]:
    found = tally.parts(kind.upper, kind.lower, later=kind.scope == "later")
    return [RatioTerms(part.upper * kind.times, part.lower) for part in found]


def _verdict(
    kind: _Kind,
    was: float | None,
    change: float | None,
    interval: Interval | None,
    counts: tuple[int, int],
    piece: Piece,
) -> tuple[Direction, str]:
    if was is None or change is None:
        side = "BEFORE" if was is None else "AFTER"
        return "unsure", f"no request of {side} has this measure"
    if interval is None:
        fewest = min(counts)
        side = "each side" if counts[0] == counts[1] else "the side BEFORE" if counts[0] == fewest else "the side AFTER"
        noun = _NOUNS[piece][fewest != 1]
        return "unsure", f"only {fewest:,} {noun} on {side}, at least {bootstrap.FEWEST} are needed"
    small = _SMALL if kind.unit == "share" else _SMALL * abs(was)
    if -small <= interval.low and interval.high <= small:
        return "same", "the difference is certainly small"
    if interval.low <= 0 <= interval.high:
        return "unsure", f"the difference may be chance with {counts[0]:,} and {counts[1]:,} {_NOUNS[piece][True]}"
    up = interval.low > 0
    return "better" if up == (kind.good == "higher") else "worse", "the interval does not include 0"


_Terms = dict[int, list[RatioTerms]]
"""Reused and prompt tokens of each piece, by the index of the session."""


class Measured(NamedTuple):
    """Reused and prompt tokens, piece by piece; of rates, shares of 1."""

    piece: Piece
    pieces: int
    """Number of pieces before neighbours were put together."""
    terms: list[RatioTerms]


def read_measured(*reports: Report) -> list[Measured] | None:
    """Read what all of them have: the most exact that gives an interval, else the most exact; None: nothing."""
    exact: list[Measured] | None = None
    for piece, read in _READ.items():
        sides = [_all(piece, read(report)) for report in reports]
        if all(len(side.terms) >= FEWEST for side in sides):
            return sides
        if exact is None and all(side.terms for side in sides):
            exact = sides
    return exact


def by_session(report: Report) -> dict[int, Measured]:
    """Read the same of each session alone, by its index; those that measured nothing are left out."""
    found: dict[int, list[Measured]] = {}
    for piece, read in _READ.items():
        for index, terms in read(report).items():
            found.setdefault(index, []).append(_all(piece, {index: terms}))
    return {index: next((m for m in some if len(m.terms) >= FEWEST), some[0]) for index, some in found.items()}


def _all(piece: Piece, found: _Terms) -> Measured:
    return Measured(piece, sum(map(len, found.values())), [run for terms in found.values() for run in runs(terms)])


def runs(parts: Sequence[RatioTerms]) -> list[RatioTerms]:
    """Put neighbours together, as many as the cube root of all.

    Requests of one conversation resemble each other, and nothing shows which they are (block bootstrap).
    """
    size = max(1, round(len(parts) ** (1 / 3)))
    some = [parts[at : at + size] for at in range(0, len(parts), size)]
    return [RatioTerms(sum(p.upper for p in run), sum(p.lower for p in run)) for run in some]


def _responses(report: Report) -> _Terms:
    found: _Terms = {}
    for session in report.sessions:
        for answer in (answer for answers in session.answers for answer in answers.each):
            _add(found, session.index, answer.cached_tokens, answer.prompt_tokens)
    return found


def _metrics(report: Report) -> _Terms:
    found: _Terms = {}
    for session in report.sessions:
        for counters in session.counters:
            _add(found, session.index, counters.reused, counters.looked_up or counters.prompt_tokens)
    return found


def _batches(report: Report) -> _Terms:
    found: _Terms = {}
    for line in report.batches.lines() if report.batches is not None else ():
        batch = msgspec.json.decode(line, type=PrefillBatch)
        if batch.new_tokens is not None and batch.cached_tokens is not None:
            _add(found, batch.session, batch.cached_tokens, batch.cached_tokens + batch.new_tokens)
    return found


def _intervals(report: Report) -> _Terms:
    found: _Terms = {}
    for line in report.samples.lines() if report.samples is not None else ():
        sample = msgspec.json.decode(line, type=CacheSample)
        if sample.looked_up_tokens is not None and sample.computed_tokens is not None:
            reused = max(0, sample.looked_up_tokens - sample.computed_tokens)  # both are rounded
            _add(found, sample.session, reused, sample.looked_up_tokens)
    return found


def _rates(report: Report) -> _Terms:
    found: _Terms = {}
    for session in report.sessions:
        for period in session.periods:
            if isinstance(period, SamplePeriod) and period.busy:
                _add(found, session.index, period.last_rate, 1)
    return found


def _add(found: _Terms, session: int, reused: float | None, prompt: float | None) -> None:
    """Count a piece that tells both and has any tokens."""
    if reused is not None and prompt:
        found.setdefault(session, []).append(RatioTerms(reused, prompt))


_READ: dict[Piece, Callable[[Report], _Terms]] = {
    "response": _responses,
    "metrics": _metrics,
    "batch": _batches,
    "interval": _intervals,
    "rate": _rates,
}
"""The most exact first."""
