"""One line per finding or request, for scripts and for rows of a live view."""

from __future__ import annotations

import io
from typing import IO

from cachedoctor.model import Finding, InputInfo, Judged, Request
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance
from cachedoctor.report.report_view import FindingView, ReportView
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.text.proof import location
from cachedoctor.report.text.text_finding import heading
from cachedoctor.report.words.do_now import of_finding
from cachedoctor.report.words.numbers import count, duration, first_sentence, number


def lost(request: Request) -> int:
    """Give the tokens that could have been reused and were not; the few at the end of a reused prompt do not count."""
    return request.lost_tokens or 0 if request.outcome in ("partial", "reprocessed") else 0


def outcome(judged: Judged) -> str:
    """Say what a request lost, for which causes, and how it ended."""
    request, said = judged.request, judged.verdict
    words = {"cold": "nothing to reuse", "unknown": "reuse unknown"}.get(request.outcome, request.outcome)
    codes = f" ({', '.join(said.codes)})" if said.codes else ""
    return f"lost {count(lost(request), 'token')}{codes}, {words}" if lost(request) else words + codes


def tokens(value: int | None) -> str:
    """Write a count that may be unknown."""
    return "unknown" if value is None else number(value)


def sentence(judged: Judged, origin: str | None) -> str:
    """Say of an ended request where it is in the log and what became of its prompt."""
    request = judged.request
    path = "<stdin>" if request.path == "-" else request.path
    place = f"{path}:{request.first_line}: {f'{origin}, ' if origin else ''}slot {request.slot}, task {request.task}"
    spent = f" in {duration(request.prompt_ms)}" if request.prompt_ms else ""
    counts = (
        f"{tokens(request.prompt_tokens)} prompt tokens = {tokens(request.cached_tokens)} reused"
        f" + {tokens(request.processed_tokens)} computed{spent}"
    )
    return f"{place}: {counts}; {outcome(judged)}"


def cost(finding: Finding) -> str:
    """Say what a finding costs so far."""
    requests = count(finding.count, "request") if finding.requests else ""
    spent = duration(finding.cost.ms) if finding.cost.tokens and finding.cost.ms else ""
    lost = count(finding.cost.tokens, "token") if finding.cost.tokens else ""
    return ", ".join(filter(None, (lost, spent, requests)))


def fix(finding: Finding) -> str:
    """Give the first line of what to do; empty when there is nothing to be done."""
    return finding.remedies[0].text.split("\n")[0] if finding.remedies else ""


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write a line for each finding, the costliest first."""
    for one in ReportView(report).findings:
        out.write(_line(one, report.inputs, look))


def line(finding: Finding, look: Appearance) -> bytes:
    """Return the line of one finding of a request, with its end, as live output writes it.

    It names its server wherever the wrapper does: nobody knows yet whether others will follow.
    """
    shown = sanitize.mask(finding)
    return _line(FindingView(shown, place=shown.origin or ""), [], look)


def _line(one: FindingView, inputs: list[InputInfo], look: Appearance) -> bytes:
    finding = one.finding
    where, claim = _place(finding, inputs)
    cost = "" if finding.cost.ms is None else f"{duration(finding.cost.ms)}, "
    cost = f"{one.place}, {cost}" if one.place else cost
    text = io.StringIO()
    page = TextPage(text, look.width, look.color, look.ascii_only)
    fix = of_finding(finding)
    do = "" if fix is None else f"; {fix.kind}: {fix.commands[0] if fix.commands else first_sentence(fix.text)}"
    words = f" {finding.name}: {claim} ({cost}confidence {finding.confidence}){do}"
    page.row(f"{where}: " if where else "", heading(page, one), words)
    return look.encode(text.getvalue())


def _place(finding: Finding, inputs: list[InputInfo]) -> tuple[str, str]:
    """Where to look and the claim: the line that proves it, else the input."""
    if finding.evidence:
        primary = finding.primary or finding.evidence[0]
        return location(primary.path, primary.line), finding.claim
    for info in inputs:
        claim = finding.claim.removeprefix(f"{location(info.path)}: ")
        if claim != finding.claim:
            return location(info.path), claim
    return location(inputs[0].path) if inputs else "", finding.claim
