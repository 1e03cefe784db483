"""One line per finding, ``path:line: severity[CODE] name: claim (server, cost, confidence); fix: ...``: for scripts.

Knows Finding and Page. Prints nothing where nothing was found.
"""

from __future__ import annotations

import io
from typing import IO

from cachedoctor.model import Finding, InputInfo
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.sanitize import ShownReport
from cachedoctor.report.text.header import place_of
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.proof import location
from cachedoctor.report.text.text_finding import heading
from cachedoctor.report.words.do_now import of_finding
from cachedoctor.report.words.numbers import duration
from cachedoctor.report.words.sentences import first_sentence


def write(report: ShownReport, out: IO[bytes], look: Look) -> None:
    """Write a line for each finding, the costliest first."""
    for finding in report.findings:
        out.write(_line(finding, report.inputs, place_of(finding, report.sessions), look))


def line(finding: Finding, look: Look) -> bytes:
    """Return the line of one finding of a request, with its end, as live output writes it.

    It names its server wherever the wrapper does: nobody knows yet whether others will follow.
    """
    shown = sanitize.finding(finding)
    return _line(shown, [], shown.origin or "", look)


def _line(finding: Finding, inputs: list[InputInfo], server: str, look: Look) -> bytes:
    where, claim = _place(finding, inputs)
    cost = "" if finding.cost.ms is None else f"{duration(finding.cost.ms)}, "
    cost = f"{server}, {cost}" if server else cost
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    fix = of_finding(finding)
    do = "" if fix is None else f"; {fix.kind}: {fix.commands[0] if fix.commands else first_sentence(fix.text)}"
    words = f" {finding.name}: {claim} ({cost}confidence {finding.confidence}){do}"
    page.row(f"{where}: " if where else "", heading(finding), words)
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
