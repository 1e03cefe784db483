"""Parts of what is said of a whole report: filters, rules that were not evaluated, unknown lines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from cachedoctor.model import Finding, NotEvaluated, Report, RequestRow, Restart
from cachedoctor.report.words.coverage import place
from cachedoctor.report.words.numbers import count, duration, number

_FILTER_WORDS_SHOWN = 10
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
    rows = [_request(row) for row in islice(report.requests, _FILTER_WORDS_SHOWN)]
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


class Unanswered(NamedTuple):
    """Why some rules could not be evaluated, and what would make it possible."""

    reason: str
    advice: str
    commands: list[str]
    rules: list[NotEvaluated]

    def covered(self, restart: Restart | None) -> bool:
        """Whether the one restart of the report does what is advised here."""
        of_server = any("llama-server" in words for words in (self.advice, *self.commands))
        return of_server and restart is not None and set(restart.codes).issuperset(rule.code for rule in self.rules)


def grouped(rules: Iterable[NotEvaluated]) -> list[Unanswered]:
    """Return the groups in the order of their first codes."""
    groups: dict[tuple[str, str], list[NotEvaluated]] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        groups.setdefault((rule.reason, rule.enable), []).append(rule)
    found = []
    for (reason, enable), members in groups.items():
        advice, *commands = enable.split("\n")
        found.append(Unanswered(reason, advice, commands, members))
    return found


_UNKNOWN_LIST_SHOWN = 20
"""Shapes; JSON has them all."""


def unknown_lines(report: Report) -> list[str]:
    """Return the list as rows of text; empty where it was not asked for."""
    if report.unknown is None:
        return []
    several = len(report.inputs) > 1
    lines = sum(info.lines for info in report.inputs)
    left = sum(shape.count for shape in report.unknown)
    rows = [f"{number(left)} of {count(lines, 'line')} are no known message, by shape (N: a number):"]
    for shape in report.unknown[:_UNKNOWN_LIST_SHOWN]:
        place = f"{shape.path}:{shape.line}" if several else f"line {shape.line}"
        rows.append(f"{number(shape.count):>9}  {shape.shape}  (first: {place})")
    if len(report.unknown) > _UNKNOWN_LIST_SHOWN:
        rows.append(
            f"{'':9}  and {count(len(report.unknown) - _UNKNOWN_LIST_SHOWN, 'more shape')}: --format json has them all"
        )
    return rows


_NAMED = 8
"""Rules that are switched off and named; of more only their number is said."""


def switched_off(codes: list[str]) -> str:
    """Say which rules are not reported."""
    named = f": {', '.join(codes)}" if len(codes) <= _NAMED else ""
    return (
        f"{count(len(codes), 'rule')} switched off{named}; {'it is' if len(codes) == 1 else 'they are'} not reported."
    )


def severities(findings: list[Finding]) -> str:
    """Count findings by severity, ``2 findings: 1 error, 1 warning``."""
    tally = {word: sum(f.severity == word for f in findings) for word in ("error", "warning", "note")}
    kinds = ", ".join(count(n, word) for word, n in tally.items() if n)
    return f"{number(len(findings))} {'finding' if len(findings) == 1 else 'findings'}: {kinds}"
