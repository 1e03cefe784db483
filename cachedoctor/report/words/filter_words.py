"""What is said of a report that shows a part of its log: which part, and what became of those requests."""

from __future__ import annotations

from itertools import islice

from cachedoctor.model import Report, RequestRow
from cachedoctor.report.words.coverage import place
from cachedoctor.report.words.numbers import count, duration, number

_SHOWN = 10
"""Requests that are described."""
_LOST = frozenset({"partial", "reprocessed"})


def filtered(report: Report) -> str:
    """Say that a part of the log is shown, and which; nothing where all is."""
    chosen = report.filtered
    if chosen is None:
        return ""
    parts = [f"task {_either(chosen.tasks)}"] if chosen.tasks else []
    parts += [f"slot {_either(chosen.slots)}"] if chosen.slots else []
    parts += [f"since {chosen.since}"] if chosen.since is not None else []
    parts += [f"until {chosen.until}"] if chosen.until is not None else []
    left_out = f" {count(chosen.without_time, 'request')} without a time left out." if chosen.without_time else ""
    return (
        f"Filtered by {', '.join(parts)}: {number(chosen.requests)} of {count(chosen.all_requests, 'request')} and "
        f"{number(chosen.findings)} of {count(chosen.all_findings, 'finding')} are shown; sums and costs are of the "
        f"whole log.{left_out}"
    )


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def shown_requests(report: Report) -> list[str]:
    """Say of the first requests of a filtered report where they stand and what became of them; none of a whole one."""
    if report.filtered is None:
        return []
    rows = [_request(row) for row in islice(report.requests, _SHOWN)]
    left = report.filtered.requests - len(rows)
    return [*rows, f"and {count(left, 'more request')}"] if left > 0 else rows


def _request(row: RequestRow) -> str:
    def tokens(value: int | None) -> str:
        return "unknown" if value is None else number(value)

    spent = f" in {duration(row.prompt_ms)}" if row.prompt_ms else ""
    lost = f"; lost {count(row.lost_tokens, 'token')}" if row.lost_tokens and row.outcome in _LOST else ""
    codes = f" ({', '.join(row.codes)})" if row.codes else ""
    return (
        f"{place(row)}, slot {row.slot}: {tokens(row.prompt_tokens)} prompt tokens = {tokens(row.cached_tokens)} "
        f"reused + {tokens(row.processed_tokens)} computed{spent}{lost}{codes}"
    )
