"""A comparison in words: what the text and the markdown form say alike. Knows Comparison; knows no output."""

from __future__ import annotations

from cachedoctor.model import ComparedSide, Comparison, FindingChange, FindingSide, Measure, Piece
from cachedoctor.report.words.numbers import count, duration, number, percent

CHANGES = {
    "came": "new",
    "stayed": "still there",
    "went": "gone",
    "hidden": "cannot be seen any more",
    "revealed": "could not be seen before",
}

_VERDICTS = {
    "better": "Better",
    "worse": "Worse",
    "same": "No difference",
    "unsure": "Cannot tell",
}


_LABELS = {
    "computed per request": "computed tokens, each",
    "prompt time per request": "prompt time, each",
    "prompt time per 1,000 prompt tokens": "time / 1,000 prompt",
    "prompt time per 1,000 computed tokens": "time / 1,000 computed",
}

_MEASURED: dict[Piece, str] = {
    "response": "responses with usage: {}",
    "metrics": "periods of /metrics: {}",
    "batch": "prefill batches: {}",
    "interval": "intervals of which the log tells the tokens: {}",
    "rate": "last hit rates that the log prints: {}",
}
"""What a log without requests has instead."""


def verdict(shown: Comparison) -> str:
    """Say in a sentence whether the change helped, and how sure that is."""
    first = shown.measures[0]
    which = "reuse of requests after the first of a conversation" if first.scope == "later" else "reuse"
    if first.before is None or first.after is None:
        return f"{_VERDICTS[shown.verdict]} whether {which} changed: {shown.why}."
    moved = f"{which} was {value(first, first.before)} and is {value(first, first.after)}"
    if first.low is not None and first.verdict != "same":
        moved += f" ({change(first, first.difference)}, 95 % interval {interval(first)})"
    return f"{_VERDICTS[shown.verdict]}: {moved}; {shown.why}."


def side(shown: ComparedSide) -> list[str]:
    """Say what one side is: its servers, its traffic."""
    servers = shown.servers[:3] + ([f"and {len(shown.servers) - 3:,} more"] if len(shown.servers) > 3 else [])
    traffic = f"{count(shown.requests, 'request')} in {count(shown.conversations, 'conversation')}"
    if shown.piece != "conversation":
        traffic = _MEASURED[shown.piece].format(number(shown.pieces))
    if shown.prompt_tokens:
        reused = percent(shown.cached_tokens, shown.prompt_tokens)
        traffic += f", {count(shown.prompt_tokens, 'prompt token')}, {reused} reused"
    if shown.unknown_requests:
        traffic += f"; of {number(shown.unknown_requests)} the log does not tell prompt and reuse"
    rows = [shown.path, "; ".join(servers) or "no server recognised", traffic]
    return rows + ([f"error: {shown.error}"] if shown.error else [])


def label(measure: Measure) -> str:
    """Name a measure."""
    if measure.name == "reuse":
        return "reuse, later requests" if measure.scope == "later" else "reuse, all requests"
    return _LABELS.get(measure.name, measure.name)


def cells(measure: Measure) -> list[str]:
    """Write before, after, difference and its interval, in the order of the headings; what is unknown is a dash."""
    return [
        value(measure, measure.before),
        value(measure, measure.after),
        change(measure, measure.difference),
        interval(measure) if measure.low is not None else _VERDICTS[measure.verdict].lower(),
    ]


def value(measure: Measure, found: float | None) -> str:
    """Write a value in the unit of the measure."""
    if found is None:
        return "-"
    if measure.unit == "share":
        return percent(found, 1)
    return _time(found) if measure.unit == "ms" else number(found)


def change(measure: Measure, found: float | None) -> str:
    """Write a difference with its sign; what rounds to 0 has none."""
    if found is None:
        return "-"
    size = abs(found)
    if measure.unit == "share":
        words = f"{100 * size:.1f} points"
    else:
        words = _time(size) if measure.unit == "ms" else number(size)
    if not any(digit in words for digit in "123456789"):
        return words
    return f"{'+' if found > 0 else '-'}{words}"


def interval(measure: Measure) -> str:
    """Write both ends of the interval."""
    if measure.low is None or measure.high is None:
        return "-"
    return f"{change(measure, measure.low).removesuffix(' points')} to {change(measure, measure.high)}"


def finding(shown: FindingChange) -> str:
    """Say what a finding hit and cost, before and after."""
    if shown.before is not None and shown.after is not None:
        return f"{_hit(shown.before)} before; {_hit(shown.after)} after"
    there = shown.before or shown.after
    return _hit(there) if there is not None else ""


def note(shown: FindingChange) -> str:
    """Say why a change of a finding is not sure."""
    return f"{shown.note}." if shown.note else ""


def _hit(there: FindingSide) -> str:
    if there.of == "servers" or there.count > there.requests:
        words = f"seen {count(there.count, 'time')}"
    else:
        words = f"{number(there.count)} of {count(there.requests, 'request')}"
    if there.tokens:
        words += f", {count(there.tokens, 'token')}"
    return words + (f", {duration(there.ms)}" if there.ms else "")


def _time(ms: float) -> str:
    return f"{ms:.1f} ms" if 0 < ms < 10 else duration(ms)
