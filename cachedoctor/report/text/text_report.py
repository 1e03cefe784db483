"""The text report: the claim and the fix in the first rows, what to do in the last one."""

from __future__ import annotations

import io
import re
from typing import IO, TextIO

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, NotEvaluated, Report, Restart
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Look
from cachedoctor.report.text import header, text_finding
from cachedoctor.report.text.page import COMMAND, KEY, Page
from cachedoctor.report.text.text_finding import Around
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import coverage, do_now, traffic_words, verdicts
from cachedoctor.report.words.coverage import cannot_tell, others, read, remarks, undecided
from cachedoctor.report.words.headlines import Shared, shared
from cachedoctor.report.words.numbers import number
from cachedoctor.report.words.verdicts import filtered, grouped, leading, listed, shown_requests, switched_off, verdict

_WIDE = 14
"""Cells of the keys."""
_CLIENTS = 8
"""Clients that have a row of their own."""


def healthy(page: Page, report: Report) -> None:
    """Write that the cache works, and what the slowest request spent its time on."""
    said = verdicts.healthy(report)
    if said is not None:
        _keyed(page, said.key, said.words)
    turn = next(iter(report.slowest), None)
    if turn is not None and report.filtered is None:  # it may be none of those that are shown
        _keyed(page, "slowest turn", traffic_words.split(turn))
        _keyed(page, "", traffic_words.reason(turn, report))


def show_cannot_tell(page: Page, report: Report, told: coverage.CannotTell, verbose: bool) -> None:
    """Write that nothing can be told, what was seen, and what would make it possible."""
    share = ": reuse is what two requests share" if told.alone else ""
    _keyed(page, "cannot tell", f"{told.why}{share}")
    seen(page, report)
    _keyed(page, "to be sure", told.give.removeprefix("To be sure, "))
    missing = told.missing if verbose else told.missing[:1]
    if missing:
        _keyed(page, "missing here", "; ".join(missing))
    if told.others:
        _keyed(page, "the others", told.others)


def seen(page: Page, report: Report) -> None:
    """Write what the lines of requests say that are not whole."""
    for at, words in enumerate(coverage.seen(report.undecided)):
        page.facts([(f"{'' if at else 'seen':<{_WIDE}}", KEY)], words, _WIDE)


def slowest(page: Page, report: Report) -> None:
    """Write the slowest requests, and why each took so long."""
    for at, turn in enumerate(report.slowest):
        _keyed(
            page, "" if at else "slowest turns", f"{traffic_words.split(turn)}; {traffic_words.reason(turn, report)}"
        )


def clients(page: Page, report: Report) -> None:
    """Write what the requests of each client took, where there are several."""
    for at, row in enumerate(traffic_words.client_rows(report, _CLIENTS)):
        _keyed(page, "" if at else "clients", f"{row.who}: {traffic_words.sentence(row)}")


def slow_beside(page: Page, report: Report) -> None:
    """Write a row about a slow request that the causes above do not explain."""
    turn = traffic_words.not_the_cache(report)
    if turn is not None:
        page.cut_row([(f"{'slowest':<10}", KEY)], f"{traffic_words.split(turn)}; not the cache")


def folded(page: Page, report: Report) -> None:
    """Write in one row what was not looked at."""
    head = "not looked at: "
    words = verdicts.not_looked_at(report, page.width - len(head))
    if words:
        page.facts([(head, KEY)], words, 2)


def last(page: Page, report: Report) -> None:
    """Write the last row: how many causes there are, and the one thing to do now."""
    if report.interrupted:
        page.row("Interrupted: this covers what was read until then.")
    if not verdicts.leading(report):
        page.facts([], _open(report) or verdicts.verdict(report), 2)
        return
    said = verdicts.causes(report)
    fix = do_now.of_report(report)
    if fix is None:
        page.facts([], f"{said}.", 2, KEY)
    elif fix.command is None:
        page.prose([(f"{said}.", KEY), " Do now: "], fix.text, 2)
    else:
        lead = f" Do now: {fix.text} " if fix.text else " Do now: "
        rows = text_finding.rows_of_command(fix.command, page.width - 2)
        if len(rows) == 1 and cell_len(f"{said}.{lead}{rows[0]}") <= page.width:
            page.row((f"{said}.", KEY), lead, (rows[0], COMMAND))
            return
        page.facts([], f"{said}.{lead.rstrip()}", 2, KEY)
        for row in rows:
            page.row("  ", (row, COMMAND))


def _open(report: Report) -> str:
    if coverage.cannot_tell(report) is None:
        return ""
    if not report.totals.requests and any(session.answers for session in report.sessions):
        return "Cannot tell. Do now: give the responses with their usage (--responses)."
    what = "the last two turns" if report.totals.requests else "some minutes with traffic"
    return f"Cannot tell. Do now: give {what}, better the whole log."


def _keyed(page: Page, key: str, words: str) -> None:
    page.prose([(f"{cut(key, _WIDE):<{_WIDE}}", KEY)], words, _WIDE)


_URL = late(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.md", re.ASCII)
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
        show_cannot_tell(page, report, told, verbose)
    elif not leads:
        healthy(page, report)
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
    last(page, report)


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
    page, shown = Page(out, width, color, ascii_only), sanitize.mask(finding)
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
        slow_beside(page, report)
    header.short(page, report)
    if others(report):
        page.facts([(f"{'read':<10}", "bold")], read(report), 10)
    for said in remarks(report):
        page.prose([], said, 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)
    folded(page, report)


def _unknown(page: Page, report: Report) -> None:
    """Write the lines that are no known message, where they were asked for; a path or a shape stays in one piece."""
    rows = listed(report)
    if rows:
        page.gap()
        for row in rows:
            page.row(row)
        page.gap()


def _everything(page: Page, report: Report) -> None:
    header.show_header(page, report)
    if undecided(report):
        seen(page, report)
    slowest(page, report)
    clients(page, report)
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
