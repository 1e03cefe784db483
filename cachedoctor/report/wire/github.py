"""The report as workflow commands of GitHub Actions: an annotation per finding, and a line that sums up."""

from __future__ import annotations

from typing import IO

from cachedoctor.model import Report
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.base import Appearance
from cachedoctor.report.report_view import FindingView, ReportView
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words.measurements import Said, measures, said
from cachedoctor.report.words.numbers import capital, count, percent
from cachedoctor.report.words.remarks import filtered, switched_off

_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write one command per finding, the costliest first: GitHub shows only the first ten of a kind per step."""
    view = ReportView(report)
    rows = [*map(_annotation, view.findings), _summary(view)]
    out.write(look.encode("".join(f"{row}\n" for row in rows)))


def _annotation(one: FindingView) -> str:
    finding, primary = one.finding, one.finding.primary
    path = finding.path if primary is None else primary.path
    place = {} if path in (None, "-") else {"file": path, "line": str(primary.line if primary is not None else 1)}
    properties = {**place, "title": f"{finding.code} {finding.name}"}
    named = ",".join(f"{name}={property_value(value or '')}" for name, value in properties.items())
    return f"::{_COMMAND[finding.severity]} {named}::{_message(one)}"


def _message(one: FindingView) -> str:
    claim = f"{capital(one.finding.claim)}."
    rows = [f"{one.place}: {claim}" if one.place else claim]
    for at, step in enumerate(one.steps):
        first, *others = step.rows()
        rows += [f"{'or' if at and step.kind == 'fix' else step.kind}: {first}", *others]
    rows += [f"{key}: {words}" for key, words in (("cost", one.cost), ("why", one.finding.why)) if words]
    rows.append(f"more: cachedoctor explain {one.finding.code}")
    return "%0A".join(map(data, rows))


def data(text: str) -> str:
    """Escape one row of a command."""
    return _torn(text).replace("%", "%25")


def _torn(text: str) -> str:
    """Tear the older form of a command apart, which the runner finds anywhere in a line."""
    return visible(text).replace("##[", "## [").replace("##vso[", "## vso[")


def property_value(text: str) -> str:
    """Escape the value of a property of a command."""
    return data(text).replace(":", "%3A").replace(",", "%2C")


def _measured(report: Report) -> Said:
    """What one server of an engine without requests measured; of several, the report says it."""
    found = [session for session in report.sessions if measures(session)]
    return said(found[0]) if len(found) == 1 else []


def _summary(view: ReportView) -> str:
    """Words and numbers of ours, and names of engines and files."""
    report = view.report
    parts = [view.verdict, *([switched_off(report.ignored)] if report.ignored else [])]
    totals = report.totals
    if totals.prompt_tokens:
        share = percent(totals.cached_tokens, totals.prompt_tokens)
        done = [(totals.processed_tokens, "computed"), (totals.unknown_tokens, "unknown from this log")]
        rest = ", ".join(f"{tokens:,} {what}" for tokens, what in done if tokens) or "none computed"
        parts.append(
            f"{count(totals.requests, 'request')}, {count(totals.prompt_tokens, 'prompt token')}: "
            f"{totals.cached_tokens:,} reused ({share}), {rest or 'none computed'}."
        )
    for key, words in _measured(report):
        parts.append(f"{key.capitalize()}: {_torn(hidden(words))}.")
    failed = sum(info.error is not None for info in report.inputs)
    if failed:
        parts.append(f"{count(failed, 'input')} could not be read to the end.")
    if report.filtered is not None:
        parts.append(filtered(report))
    if report.interrupted:
        parts.append("Interrupted: this covers the part read until then.")
    return f"cachedoctor: {' '.join(parts)}"
