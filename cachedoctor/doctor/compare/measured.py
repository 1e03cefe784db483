"""Reuse where a log has no requests (vLLM, SGLang): pieces of one ratio, from the best source that there is.

Responses tell of each request, dumps of /metrics of the time between them, prefill batches of what they admitted,
statistics lines of an interval or of the last requests. None is added to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.doctor.compare.bootstrap import FEWEST, RatioTerms
from cachedoctor.model import CacheSample, Piece, PrefillBatch, Report, SamplePeriod

_Terms = dict[int, list[RatioTerms]]
"""Reused and prompt tokens of each piece, by the index of the session."""


class Measured(NamedTuple):
    """Reused and prompt tokens, piece by piece; of rates, shares of 1."""

    piece: Piece
    pieces: int
    """Before neighbours were put together."""
    terms: list[RatioTerms]


def measured(*reports: Report) -> list[Measured] | None:
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

    Requests of one conversation resemble each other, and nothing says which they are (block bootstrap).
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
