"""Sums up the statistics lines of a vLLM engine from one reset of its cache to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cachedoctor.model import CacheSample, Mark, SamplePeriod, Session, Since

MOST_REQUESTS = 1_000
"""Requests that the rate rolls over (0.7 to 0.33)."""
ROUNDED = 0.0005
"""Share by which a printed rate may be off."""
_LEAST_LEFT = 0.005
"""Computed share below which the rounded rate is too inexact to divide by it."""


class LookedUp(NamedTuple):
    """Tokens that were looked up."""

    tokens: int
    within: int
    """Tokens by which the number may be off, in either direction."""


def looked_up(computed: int, within: int, rate: float, external_rate: float | None = None) -> LookedUp | None:
    """Tokens looked up since the rate began; None if nearly all were reused.

    Args:
        computed: tokens computed since then.
        within: possible error of ``computed``, in tokens.
        rate: the printed rate, from 0 to 1.
        external_rate: the printed rate of an external cache; None if there is none.
    """
    parts = [rate] if external_rate is None else [rate, external_rate]
    left = 1.0
    for part in parts:
        left *= 1 - part
    if left < _LEAST_LEFT:
        return None
    # Each rounding moves 1 / left by about ROUNDED / ((1 - part) x left): for one rate C x ROUNDED / (1 - r)^2.
    off = sum(computed * ROUNDED / ((1 - part) * left) for part in parts) + within / left
    return LookedUp(round(computed / left), max(1, round(off)))


def between(earlier: LookedUp, later: LookedUp) -> LookedUp:
    """Tokens that were looked up between two moments of one period; at least 0."""
    return LookedUp(max(0, later.tokens - earlier.tokens), earlier.within + later.within)


MOST = 64
"""Periods that a session keeps."""
_ROUNDING = 0.05
"""Tokens per second by which a printed rate may be off."""
_CLOCK = 0.002
"""Share by which the server's timer may be late: one interval of 10 s lasts up to 10.02 s."""

_GUESSED = 2
"""Samples of an engine that come before its interval is known."""
_CLOSE_S = 2.0
"""Seconds by which the first interval may differ from the others: the start takes some time."""


class Periods:
    """The periods of one server, one open at a time for each engine."""

    def __init__(self, session: Session, since: Since) -> None:
        self._session = session
        self._since: Since = since
        self._begin: Mark | None = None
        self._open: dict[str | None, SamplePeriod] = {}
        self._first: dict[str | None, list[tuple[SamplePeriod, CacheSample, float]]] = {}
        """The first samples of every engine, their periods, and the uncertainty of each in seconds."""
        self._before: dict[str | None, LookedUp] = {}
        """What each engine had looked up when its last sample with a rate came."""

    def reset(self, mark: Mark) -> None:
        """Note that the cache was emptied, which also resets the statistics of every engine."""
        if self._open or self._begin is None:
            self._since = "reset"
        self._begin = mark
        self._open.clear()
        self._before.clear()

    def add(self, sample: CacheSample, mark: Mark, early_s: float = 0.0) -> None:
        """Add a sample; ``early_s``: uncertainty of the interval in seconds."""
        period = self._open.get(sample.engine)
        if period is None:
            period = SamplePeriod(sample.engine, self._since, sample.line, sample.line)
            if self._begin is not None:
                period.marks["begin"] = self._begin
            self._open[sample.engine] = period
            _keep(self._session, period)
        period.last_line = sample.line
        _count(period, sample, mark, early_s)
        self._look_up(period, sample)
        first = self._first.setdefault(sample.engine, [])
        if len(first) < _GUESSED:
            first.append((period, sample, early_s))

    def learned(self, engine: str | None, interval_s: float | None) -> None:
        """Count the first samples of an engine again if their interval, unknown until now, was not the default."""
        if interval_s is None:
            return
        for period, sample, early_s in self._first.get(engine, ()):
            if sample.interval_s and abs(sample.interval_s - interval_s) > _CLOSE_S:
                _correct(period, sample, early_s, interval_s / sample.interval_s)
                sample.looked_up_tokens = sample.looked_up_within = None
                self._before.pop(engine, None)
                _tell(period, self._looked_up(period))

    def _look_up(self, period: SamplePeriod, sample: CacheSample) -> None:
        """Say how much was looked up since the period began, and since the sample before."""
        found, before = self._looked_up(period), self._before.get(sample.engine)
        _tell(period, found)
        if found is None or sample.hit_rate is None:
            return
        if before is not None:
            sample.looked_up_tokens, sample.looked_up_within = between(before, found)
        elif period.busy == 1:
            sample.looked_up_tokens, sample.looked_up_within = found
        self._before[sample.engine] = found

    def _looked_up(self, period: SamplePeriod) -> LookedUp | None:
        """The tokens that the rate shows, while no request has rolled out of it."""
        requests = [p.answered for p in self._open.values()]
        told = [count for count in requests if count is not None]
        if period.since == "log" or len(told) < len(requests) or sum(told) > MOST_REQUESTS:
            return None
        if period.computed_tokens is None or period.last_rate is None or not period.busy:
            return None
        if period.waiting and self._session.since("0.27") is not True:
            return None  # up to 0.26 a waiting request is looked up again whenever it is tried
        within = period.within or 0
        return looked_up(period.computed_tokens, within, period.last_rate, period.last_external_rate)


def _tell(period: SamplePeriod, found: LookedUp | None) -> None:
    period.looked_up_tokens, period.looked_up_within = (None, None) if found is None else found


def _correct(period: SamplePeriod, sample: CacheSample, early_s: float, times: float) -> None:
    """Make the interval of a sample so many times as long."""
    _tokens(period, sample, early_s, -1)
    before, sample.interval_s = sample.interval_s or 0.0, (sample.interval_s or 0.0) * times
    period.seconds += sample.interval_s - before if sample.prompt_rate else 0.0
    sample.prompt_tokens = None if sample.prompt_tokens is None else round(sample.prompt_tokens * times)
    sample.computed_tokens = None if sample.computed_tokens is None else round(sample.computed_tokens * times)
    _tokens(period, sample, early_s, 1)


def _keep(session: Session, period: SamplePeriod) -> None:
    """Add a period; of too many the one with the fewest samples goes, the last one never."""
    if len(session.periods) >= MOST:
        least: Callable[[int], int] = lambda at: getattr(session.periods[at], "samples", 0)  # noqa: E731
        del session.periods[min(range(MOST - 1), key=least)]
    session.periods.append(period)


def _count(period: SamplePeriod, sample: CacheSample, mark: Mark, early_s: float) -> None:
    period.samples += sample.prompt_rate is not None
    if sample.answered is not None:
        period.answered = (period.answered or 0) + sample.answered
    if sample.waiting is not None:
        period.waiting = max(period.waiting, sample.waiting)
    if sample.kv_usage is not None and sample.kv_usage >= (period.kv_usage or 0.0):
        period.kv_usage = sample.kv_usage
        period.marks["usage"] = mark
    _tokens(period, sample, early_s, 1)
    if sample.prompt_rate:
        period.busy += 1
        period.seconds += sample.interval_s or 0.0
        period.marks.setdefault("first", mark)
        period.marks["last"] = mark
    if sample.external_hit_rate is not None:
        period.last_external_rate = sample.external_hit_rate
    if sample.hit_rate is None or not period.busy:
        return
    period.rates += 1
    period.last_rate = sample.hit_rate
    if sample.prompt_rate or sample.prompt_rate is None:  # V0 prints the hit rate on a line of its own
        period.first_rate = sample.hit_rate if period.first_rate is None else period.first_rate
        period.least_rate = min(sample.hit_rate, sample.hit_rate if period.least_rate is None else period.least_rate)
        period.most_rate = max(sample.hit_rate, period.most_rate or 0.0)


def _tokens(period: SamplePeriod, sample: CacheSample, early_s: float, sign: int) -> None:
    """Add the tokens of a sample to its period, or take them away."""
    interval, rate = sample.interval_s, sample.prompt_rate
    if interval is None or rate is None:
        return
    tokens = sample.computed_tokens if sample.computed_tokens is not None else sample.prompt_tokens
    if sample.computed_tokens is not None:
        period.computed_tokens = (period.computed_tokens or 0) + sign * sample.computed_tokens
    if sample.prompt_tokens is not None:
        period.prompt_tokens = (period.prompt_tokens or 0) + sign * sample.prompt_tokens
    if sample.generation_rate is not None:
        period.generated_tokens = (period.generated_tokens or 0) + sign * round(sample.generation_rate * interval)
    if tokens:
        off = _ROUNDING * interval + rate * (early_s + _CLOCK * interval)
        period.within = (period.within or 0) + sign * max(1, round(off))
