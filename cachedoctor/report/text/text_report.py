"""The text report: the claim and what to do in its first rows, and what to do once more in the last one.

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
from cachedoctor.report.text import answers, header, text_finding
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.text_finding import Around
from cachedoctor.report.words import do_now
from cachedoctor.report.words.cause_words import Shared, shared
from cachedoctor.report.words.coverage import cannot_tell, others, read, remarks, undecided
from cachedoctor.report.words.filter_words import filtered, shown_requests
from cachedoctor.report.words.not_evaluated_words import grouped
from cachedoctor.report.words.numbers import number
from cachedoctor.report.words.unknown_list import listed
from cachedoctor.report.words.verdicts import leading, switched_off, verdict

_URL = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.md", re.ASCII)
_BLOCKS, _LISTED = 3, 8
"""Further findings that get a block each, and a row each."""


def render(
    report: ShownReport,
    out: TextIO,
    width: int = 80,
    *,
    color: bool = False,
    ascii_only: bool = False,
    pages: str | None = None,
    verbose: bool = False,
) -> None:
    """Write the whole report.

    Args:
        width: cells of a row; a word of a command or an address may be longer.
        color: whether ``out`` understands escape codes.
        ascii_only: whether ``out`` can show ASCII only.
        pages: what stands before the address of a rule's page to make it a link; None where there are no links.
        verbose: whether everything is shown that is known.
    """
    page = Page(out, width, color, ascii_only)
    around = _arounds(report, pages)
    if report.filtered is not None:
        page.prose([(f"{'filter':<10}", "bold")], filtered(report), 10)
        for words in shown_requests(report):
            page.facts([(f"{'request':<10}", "bold")], words, 10)
        page.gap()
    findings = report.findings
    told = cannot_tell(report)
    leads = leading(report)
    if told is not None and not leads:
        answers.cannot_tell(page, report, told, verbose)
    elif not leads:
        answers.healthy(page, report)
    if verbose:
        for finding in findings:
            page.gap()
            text_finding.whole(page, finding, around[finding.identity])
    else:
        _findings(page, report, shared(report, leads), around)
        _rows(page, [] if leads else shared(report, findings), around)
    page.gap()
    if verbose:
        _everything(page, report)
    else:
        _rest(page, report, bool(leads))
    _unknown(page, report)
    answers.last(page, report)


def write(report: ShownReport, out: IO[bytes], look: Look) -> None:
    """Write the report as it is to look on one output."""
    text = io.StringIO()
    render(
        report, text, look.width, color=look.color, ascii_only=look.ascii_only, pages=look.pages, verbose=look.verbose
    )
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
    summary: str = "",
) -> None:
    """Write one finding and an empty row, as live output does; ``url`` and ``summary`` are those of its rule.

    It names its server wherever the wrapper does: nobody knows yet whether others will follow.
    """
    page, shown = Page(out, width, color, ascii_only), sanitize.finding(finding)
    text_finding.first(page, shown, Around(shown.origin or "", None, _link(pages, url), summary))
    page.gap()


def _arounds(report: Report, pages: str | None) -> dict[tuple[object, ...], Around]:
    """What each finding is shown with, by its identity."""
    named = {evidence.session for finding in report.findings for evidence in finding.evidence[:1]}
    several = len(report.sessions) > 1
    where = {s.index: header.place(s) for s in report.sessions if several and s.index in named}
    rules = {rule.code: rule for rule in report.rules}
    found: dict[tuple[object, ...], Around] = {}
    for finding in report.findings:
        rule = rules.get(finding.code)
        session = finding.evidence[0].session if finding.evidence else -1
        link = None if rule is None else _link(pages, rule.url)
        summary = "" if rule is None else rule.summary
        fix = do_now.fix_of(finding, report.fix)
        found[finding.identity] = Around(where.get(session, ""), report.totals, link, summary, fix)
    return found


def _findings(page: Page, report: Report, found: list[Shared], around: dict[tuple[object, ...], Around]) -> None:
    """Write the first cause, then the others: a row each where they are many, blocks, and a row for each note."""
    if not found:
        return
    page.gap()
    first = _around(found[0], around)
    text_finding.first(page, found[0].finding, first._replace(hint=do_now.hint(report)))
    others = [one for one in found[1:] if one.finding.severity != "note"]
    notes = [one for one in found[1:] if one.finding.severity == "note"]
    if len(others) > 1:
        _rows(page, others, around)
    told = [first.fix] if _shows(found[0], first) else []
    for one in others[:_BLOCKS]:
        page.gap()
        its = _around(one, around)
        text_finding.brief(page, one.finding, its._replace(is_first=its.fix not in told))
        told += [its.fix] if _shows(one, its) else []
    _rows(page, notes, around)


def _around(one: Shared, around: dict[tuple[object, ...], Around]) -> Around:
    return around[one.first.identity]._replace(servers=one.servers)


def _shows(one: Shared, around: Around) -> bool:
    """Whether the fix of its server stands in its block."""
    fix = do_now.of_finding(one.finding, around.fix)
    return fix is not None and bool(fix.steps)


def _rows(page: Page, found: list[Shared], around: dict[tuple[object, ...], Around]) -> None:
    if not found:
        return
    page.gap()
    for one in found[:_LISTED]:
        text_finding.listed(page, one.finding, _around(one, around))
    if len(found) > _LISTED:
        page.row(f"and {number(len(found) - _LISTED)} more: -v lists them")


def _link(pages: str | None, url: str | None) -> str | None:
    """Address of a rule's page; a report that was read from a file may name anything as its address."""
    return pages + url if pages is not None and url is not None and _URL.fullmatch(url) else None


# ---- behind the findings


def _rest(page: Page, report: Report, has_causes: bool) -> None:
    """Write in a few rows what the servers are and what was read."""
    if has_causes:
        answers.slow_beside(page, report)
    header.short(page, report)
    if others(report):
        page.facts([(f"{'read':<10}", "bold")], read(report), 10)
    for said in remarks(report):
        page.prose([], said, 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)
    answers.folded(page, report)


def _unknown(page: Page, report: Report) -> None:
    """Write the lines that are no known message, where they were asked for; a path or a shape stays in one piece."""
    rows = listed(report)
    if rows:
        page.gap()
        for row in rows:
            page.row(row)
        page.gap()


def _everything(page: Page, report: Report) -> None:
    header.show(page, report)
    if undecided(report):
        answers.seen(page, report)
    answers.slowest(page, report)
    answers.clients(page, report)
    if report.not_evaluated:
        page.gap()
        _not_evaluated(page, report.not_evaluated, report.restart)
    page.gap()
    page.prose([], f"Read {read(report)}.", 2)
    for said in remarks(report):
        page.prose([], said, 2)
    if leading(report):
        page.prose([], verdict(report), 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)


def _not_evaluated(page: Page, rules: list[NotEvaluated], restart: Restart | None) -> None:
    page.row(("Could not be evaluated", "bold"))
    for group in grouped(rules):
        page.facts(["  "], ", ".join(f"{rule.code} {rule.name}" for rule in group.rules), 2)
        page.prose(["    "], group.reason, 4)
        if group.covered(restart):
            continue  # by the restart below
        # A command stands on a row of its own, so that it can be copied.
        page.prose(["    ", ("to enable: ", "bold")], group.advice, 4)
        text_finding.commands(page, group.commands, 6)
    if restart is not None:
        page.prose(["  ", ("One restart ", "bold")], f"enables {', '.join(restart.codes)}. {restart.text}", 4)
        text_finding.commands(page, restart.command.splitlines(), 6)
