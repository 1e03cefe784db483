"""A comparison in words, and as text, markdown and JSON (``cachedoctor.compare/1``, frozen)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import (
    ComparedSide,
    Comparison,
    Difference,
    Direction,
    FindingChange,
    FindingSide,
    Measure,
    Piece,
)
from cachedoctor.model.report import Tool
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.base import Appearance
from cachedoctor.report.markdown.markdown_safe import cell, code, prose, table
from cachedoctor.report.text import page as text_table
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.words.measured_table import Heading, MeasuredCells
from cachedoctor.report.words.numbers import count, duration, number, percent

CHANGES = {
    "came": "new",
    "stayed": "still there",
    "went": "gone",
    "hidden": "can no longer be checked",
    "revealed": "could not be checked before",
}

_VERDICTS = {
    "better": "Better",
    "worse": "Worse",
    "same": "No difference",
    "unsure": "Cannot tell",
}


_LABELS = {
    "computed per request": "computed per request",
    "prompt time per request": "time per request",
    "prompt time per 1,000 prompt tokens": "time / 1,000 prompt",
    "prompt time per 1,000 computed tokens": "time / 1,000 computed",
}

_MEASURED: dict[Piece, str] = {
    "response": "responses with usage: {}",
    "metrics": "periods of /metrics: {}",
    "batch": "prefill batches: {}",
    "interval": "intervals with token counts in the log: {}",
    "rate": "last hit rates in the log: {}",
}
"""What a log without requests has instead."""


def comparison_verdict(shown: Comparison) -> str:
    """Say in a sentence whether the change helped, and how sure that is."""
    first = shown.measures[0]
    which = "reuse of requests after the first of a conversation" if first.scope == "later" else "reuse"
    if first.before is None or first.after is None:
        return f"{_VERDICTS[shown.verdict]} whether {which} changed: {shown.why}."
    moved = f"{which} was {value(first, first.before)} and is {value(first, first.after)}"
    if first.low is not None and first.verdict != "same":
        moved += f" ({change(first, first.difference)}, 95 % interval {interval(first)})"
    return f"{_VERDICTS[shown.verdict]}: {moved}; {shown.why}."


def side_rows(shown: ComparedSide) -> list[str]:
    """Say what one side is: its servers, its traffic."""
    servers = shown.servers[:3] + ([f"and {len(shown.servers) - 3:,} more"] if len(shown.servers) > 3 else [])
    traffic = f"{count(shown.requests, 'request')} in {count(shown.conversations, 'conversation')}"
    if shown.piece != "conversation":
        traffic = _MEASURED[shown.piece].format(number(shown.pieces))
    if shown.prompt_tokens:
        reused = percent(shown.cached_tokens, shown.prompt_tokens)
        traffic += f", {count(shown.prompt_tokens, 'prompt token')}, {reused} reused"
    if shown.unknown_requests:
        traffic += f"; for {count(shown.unknown_requests, 'request')} the log does not show prompt length and reuse"
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


Form = Literal["text", "json", "markdown"]
FORMATS: tuple[Form, ...] = get_args(Form)
_HEADINGS = [Heading("before"), Heading("after"), Heading("difference"), Heading("95 % interval")]


class CompareDocument(msgspec.Struct):
    """Two reports side by side. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.compare/1"]
    tool: Tool
    before: ComparedSide
    after: ComparedSide
    verdict: Direction
    why: str
    measures: list[Measure]
    findings: list[FindingChange]
    differences: list[Difference]


def write(form: Form, shown: Comparison, out: IO[bytes], look: Appearance) -> None:
    """Write the comparison in one of the forms."""
    forms: dict[Form, Callable[[Comparison, Appearance], bytes]] = {"text": _text, "json": _json, "markdown": _markdown}
    out.write(forms[form](sanitize.mask(shown), look))


def _json(shown: Comparison, _: Appearance) -> bytes:
    tool = Tool("cachedoctor", shown.tool_version)
    document = CompareDocument(
        "cachedoctor.compare/1", tool, shown.before, shown.after, shown.verdict, shown.why, shown.measures,
        shown.findings, shown.differences,
    )  # fmt: skip
    return msgspec.json.encode(document) + b"\n"


# ---- text


def _text(shown: Comparison, look: Appearance) -> bytes:
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    for key, side in (("before", shown.before), ("after", shown.after)):
        name, *others = side_rows(side)
        page.row((f"{key:<10}", "bold"), name)
        for other in others:
            page.prose([" " * 10], other, 10)
    for at, found in enumerate(shown.differences):
        key = "differ in" if not at else ""
        caveat = f" ({found.caveat})" if found.caveat else ""
        page.prose([(f"{key:<10}", "bold")], f"{found.name}: {found.before} -> {found.after}{caveat}", 10)
    page.gap()
    text_table.show_table(page, "", _HEADINGS, [MeasuredCells(label(m), cells(m)) for m in shown.measures])
    page.gap()
    for change in shown.findings:
        _finding(page, change)
    if not shown.findings:
        page.prose([], "No findings on either side.", 0)
    page.gap()
    style = {"better": "green", "worse": "red"}.get(shown.verdict, "")
    page.prose([], comparison_verdict(shown), 2, style)
    return look.encode(text.getvalue())


def _finding(page: TextPage, shown: FindingChange) -> None:
    head = f"{CHANGES[shown.change]}: "
    page.prose([(head, "bold"), f"{shown.code} {shown.name}: "], finding(shown), 2)
    if shown.note:
        page.prose(["  "], note(shown), 4)
    if shown.enable:
        # A command is on a row of its own, so that it can be copied.
        advice, *commands = shown.enable.split("\n")
        page.prose(["  ", ("to see it: ", "bold")], advice, 4)
        for command in commands:
            page.row("    ", (command, "green"))


# ---- markdown


def _markdown(shown: Comparison, _: Appearance) -> bytes:
    parts = [f"**{prose(comparison_verdict(shown))}**"]
    sides = []
    for key, side in (("before", shown.before), ("after", shown.after)):
        name, *others = (hidden(text) for text in side_rows(side))  # it is made to be published
        sides += [f"- {key}: {code(name)}", *(f"  - {prose(other)}" for other in others)]
    parts.append("\n".join(sides))
    measures = [[label(m), *cells(m)] for m in shown.measures]
    parts.append(table(["measure", *(heading.name for heading in _HEADINGS)], measures, 1))
    if shown.findings:
        rows = [[f"{c.code} {c.name}", CHANGES[c.change], finding(c), _more(c)] for c in shown.findings]
        parts.append(_words(["finding", "change", "requests and cost", "note"], rows))
    if shown.differences:
        rows = [[d.name, d.before, d.after, d.caveat] for d in shown.differences]
        parts.append(_words(["differs", "before", "after", "caveat"], rows))
    return ("\n\n".join(parts) + "\n").encode("utf-8", "backslashreplace")


def _words(head: list[str], rows: list[list[str]]) -> str:
    return table(head, [[cell(text) if text else "" for text in row] for row in rows], len(head))


def _more(change: FindingChange) -> str:
    enable = " ".join(change.enable.split())
    return f"{note(change)}{f' To see it: {enable}' if enable else ''}"
