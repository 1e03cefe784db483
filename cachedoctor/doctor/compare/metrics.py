"""The numbers by which two reports are compared, and what each of them says."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cachedoctor.doctor.compare import bootstrap
from cachedoctor.doctor.compare.bootstrap import Interval, RatioTerms
from cachedoctor.doctor.compare.measured import Measured
from cachedoctor.doctor.compare.tally import Tally
from cachedoctor.model import Direction, Measure, Piece

_SMALL = 0.01
"""One point of a share, or one per cent of another number: a difference that certainly is no larger is none."""

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


def measured(before: Measured, after: Measured) -> list[Measure]:
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
        return "unsure", f"{side} has no request that tells it"
    if interval is None:
        fewest = min(counts)
        side = "each side" if counts[0] == counts[1] else "the side BEFORE" if counts[0] == fewest else "the side AFTER"
        noun = _NOUNS[piece][fewest != 1]
        return "unsure", f"only {fewest:,} {noun} on {side}, {bootstrap.FEWEST} are needed"
    small = _SMALL if kind.unit == "share" else _SMALL * abs(was)
    if -small <= interval.low and interval.high <= small:
        return "same", "the difference is certainly small"
    if interval.low <= 0 <= interval.high:
        return "unsure", f"the difference may be chance with {counts[0]:,} and {counts[1]:,} {_NOUNS[piece][True]}"
    up = interval.low > 0
    return "better" if up == (kind.good == "higher") else "worse", "the interval leaves out 0"
