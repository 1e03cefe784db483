"""The text report: what the server is, what the traffic cost, why, what could not be checked.

Knows the Report and how its parts are shown. Never asks the terminal: width and colour are arguments.
"""

from __future__ import annotations

import io
import re
from typing import IO, TextIO

from cachedoctor.model import Finding, NotEvaluated, Report, Restart
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.sanitize import ShownReport
from cachedoctor.report.text import header, text_finding
from cachedoctor.report.text.page import Page
from cachedoctor.report.words.coverage import checked, imitated, numbered, seen, undecided
from cachedoctor.report.words.not_evaluated_words import grouped
from cachedoctor.report.words.numbers import count, number, percent

_URL = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.md", re.ASCII)
_NAMED = 8
"""Rules that are switched off and named; of more only their number is said."""


def render(
    report: ShownReport,
    out: TextIO,
    width: int = 80,
    *,
    color: bool = False,
    ascii_only: bool = False,
    pages: str | None = None,
) -> None:
    """Write the whole report.

    Args:
        width: cells of a row; commands, paths and addresses may be longer.
        color: whether ``out`` understands escape codes.
        ascii_only: whether ``out`` can show ASCII only.
        pages: what stands before the address of a rule's page to make it a link; None where there are no links.
    """
    page = Page(out, width, color, ascii_only)
    header.show(page, report)
    findings = report.findings
    named = {evidence.session for finding in findings for evidence in finding.evidence[:1]}
    several = len(report.sessions) > 1
    where = {s.index: header.place(s) for s in report.sessions if several and s.index in named}
    urls = {rule.code: rule.url for rule in report.rules}
    if undecided(report):
        for words in seen(report.undecided):
            page.facts([(f"{'seen':<10}", "bold")], words, 10)
    for finding in findings:
        session = finding.evidence[0].session if finding.evidence else -1
        page.gap()
        text_finding.show(
            page, finding, where.get(session, ""), report.totals.prompt_ms, _link(pages, urls.get(finding.code))
        )
    if report.not_evaluated:
        page.gap()
        _not_evaluated(page, report.not_evaluated, report.restart)
    page.gap()
    _footer(page, report)


def write(report: ShownReport, out: IO[bytes], look: Look) -> None:
    """Write the report as it is to look on one output."""
    text = io.StringIO()
    render(report, text, look.width, color=look.color, ascii_only=look.ascii_only, pages=look.pages)
    out.write(look.encode(text.getvalue()))


def render_finding(
    finding: Finding,
    out: TextIO,
    width: int = 80,
    *,
    color: bool = False,
    ascii_only: bool = False,
    pages: str | None = None,
    url: str | None = None,
) -> None:
    """Write one finding and an empty row, as live output does; ``url`` is that of its rule.

    It names its server wherever the wrapper does: nobody knows yet whether others will follow.
    """
    page, shown = Page(out, width, color, ascii_only), sanitize.finding(finding)
    text_finding.show(page, shown, shown.origin or "", link=_link(pages, url))
    page.gap()


def _link(pages: str | None, url: str | None) -> str | None:
    """Address of a rule's page; a report that was read from a file may name anything as its address."""
    return pages + url if pages is not None and url is not None and _URL.fullmatch(url) else None


def _not_evaluated(page: Page, rules: list[NotEvaluated], restart: Restart | None) -> None:
    page.row(("Could not be evaluated", "bold"))
    for group in grouped(rules):
        page.facts(["  "], ", ".join(f"{rule.code} {rule.name}" for rule in group.rules), 2)
        page.prose(["    "], group.reason, 4)
        if group.covered(restart):
            continue  # by the restart below
        # A command stands on a row of its own, so that it can be copied.
        page.prose(["    ", ("to enable: ", "bold")], group.advice, 4)
        for command in group.commands:
            page.row("      ", (command, "green"))
    if restart is not None:
        page.prose(["  ", ("One restart ", "bold")], f"enables {', '.join(restart.codes)}. {restart.text}", 4)
        for command in restart.command.splitlines():
            page.row("      ", (command, "green"))


def _footer(page: Page, report: Report) -> None:
    if report.interrupted:
        page.prose([("Interrupted: ", "bold")], "this covers what was read until then.", 2)
    page.prose([], _read(report), 2)
    for said in filter(None, (numbered(report), imitated(report))):
        page.prose([], said, 2)
    page.prose([], verdict(report), 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)


def _read(report: Report) -> str:
    lines = sum(i.lines for i in report.inputs)
    inputs = f" of {number(len(report.inputs))} inputs" if len(report.inputs) > 1 else ""
    if not report.inputs:
        return "Read no log."
    if not lines:
        return f"Read 0 lines{inputs}."
    known = percent(sum(i.recognised for i in report.inputs), lines)
    return f"Read {count(lines, 'line')}{inputs}, {known} recognised."


def verdict(report: Report) -> str:
    """Sum up in a sentence what was found, and what could not be."""
    open_rules = len({rule.code for rule in report.not_evaluated})
    left = f"; {count(open_rules, 'rule')} could not be evaluated" if open_rules else ""
    if report.findings:
        return f"{text_finding.severities(report.findings)}{left}."
    said = checked(report)
    if undecided(report):
        return undecided(report)
    return f"No findings. {said}{left}." if said else "No requests in it: nothing was checked."


def switched_off(codes: list[str]) -> str:
    """Say which rules are not reported."""
    named = f": {', '.join(codes)}" if len(codes) <= _NAMED else ""
    return (
        f"{count(len(codes), 'rule')} switched off{named}; {'it is' if len(codes) == 1 else 'they are'} not reported."
    )
