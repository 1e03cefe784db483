"""The text report: the claim and the fix in the first rows, what to do in the last one."""

from __future__ import annotations

import io
from typing import IO, TextIO

from rich.cells import cell_len

from cachedoctor.model import Finding, NotEvaluated, Report, Restart
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance
from cachedoctor.report.report_view import FindingView, ReportView
from cachedoctor.report.text import header, text_finding
from cachedoctor.report.text.page import COMMAND, KEY, TextPage
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.coverage import CannotTell, only_short
from cachedoctor.report.words.numbers import number
from cachedoctor.report.words.remarks import (
    filtered,
    grouped,
    is_mostly_unknown,
    not_checked,
    read,
    remarks,
    seen,
    shown_requests,
    switched_off,
    unknown_lines,
)

_WIDE, _NARROW = 14, 10
"""Cells of the row labels, above and below the findings."""
_CLIENTS = 8
"""Clients that have a row of their own."""
_BLOCKS, _LISTED = 3, 8
"""Further findings that get a block each, and a row each."""
_SCREEN = 23
"""Terminal rows above the next prompt: a longer report omits the least important parts; ``verbose`` shows them."""


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
        pages: what comes before the address of a rule's page to make it a link; None if there are no links.
        verbose: whether everything is shown that is known.
    """
    view = ReportView(report)
    for tight in range(text_finding.TIGHTEST + 1):
        text = io.StringIO()
        _render(TextPage(text, width, color, ascii_only, pages), view, tight, verbose=verbose)
        if verbose or text.getvalue().count("\n") <= _SCREEN:
            break
    out.write(text.getvalue())


def _render(page: TextPage, view: ReportView, tight: int, *, verbose: bool) -> None:
    """Write the report; the higher ``tight``, the fewer rows."""
    report = view.report
    if report.filtered is not None:
        page.prose([(f"{'filter':<{_NARROW}}", KEY)], filtered(report), _NARROW)
        for words in shown_requests(report):
            page.facts([(f"{'request':<{_NARROW}}", KEY)], words, _NARROW)
        page.gap()
    if view.cannot_tell is not None and not view.has_causes:
        _cannot_tell(page, report, view.cannot_tell, verbose)
    elif not view.has_causes:
        _healthy(page, view)
    if verbose:
        for one in view.findings:
            page.gap()
            text_finding.whole(page, one)
    elif view.has_causes:
        _findings(page, view, tight)
    else:
        _rows(page, view.causes, view)
    page.gap()
    if verbose:
        _everything(page, view)
    else:
        _summary(page, view, tight)
    _unknown(page, report)
    _last(page, view)


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write the report in the form for one output."""
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
    page, shown = TextPage(out, width, color, ascii_only, pages), sanitize.mask(finding)
    text_finding.first(page, FindingView(shown, place=shown.origin or "", summary=summary, url=url))
    page.gap()


# ---- before the findings


def _healthy(page: TextPage, view: ReportView) -> None:
    """Write that the cache works, and what the slowest request spent its time on."""
    if view.healthy is not None:
        _keyed(page, view.healthy.key, view.healthy.words)
    turn = next(iter(view.report.slowest), None)
    if turn is not None and view.report.filtered is None:  # it may be none of those that are shown
        _keyed(page, "slowest turn", traffic_words.split(turn))
        _keyed(page, "", traffic_words.reason(turn, view.report))


def _cannot_tell(page: TextPage, report: Report, why: CannotTell, verbose: bool) -> None:
    """Write that requests could not be assessed, what was seen, and what would make it possible."""
    share = ": reuse can only be seen in a second request" if why.alone else ""
    _keyed(page, "cannot tell", f"{why.why}{share}")
    _seen(page, report)
    _keyed(page, "to be sure", why.give.removeprefix("To be sure, "))
    missing = why.missing if verbose else why.missing[:1]
    if missing:
        _keyed(page, "missing here", "; ".join(missing))
    if why.others:
        _keyed(page, "other lines", why.others)


def _seen(page: TextPage, report: Report) -> None:
    """Write the numbers that incomplete requests show."""
    for at, words in enumerate(seen(report.undecided)):
        page.facts([(f"{'' if at else 'seen':<{_WIDE}}", KEY)], words, _WIDE)


def _keyed(page: TextPage, key: str, words: str) -> None:
    page.prose([(f"{cut(key, _WIDE):<{_WIDE}}", KEY)], words, _WIDE)


# ---- findings


def _findings(page: TextPage, view: ReportView, tight: int) -> None:
    """Write the first cause, then the others: a row each where they are many, blocks, and a row for each note."""
    first, *further = view.causes
    page.gap()
    text_finding.first(page, first, view.hint, tight)
    others = [one for one in further if one.finding.severity != "note"]
    rows = [one for one in further if one.finding.severity == "note"]
    if tight > 1:
        _rows(page, others + rows, view)
        return
    if len(others) > 1:
        _rows(page, others, view)
        others = [one for one in others if not view.has_same_fix(one)]
    elif others and view.has_same_fix(others[0]):
        others, rows = [], others + rows
    written = [first.fix] if _has_steps(first) else []
    for one in others[:_BLOCKS]:
        page.gap()
        text_finding.brief(page, one, fix_is_above=one.fix in written)
        written += [one.fix] if _has_steps(one) else []
    _rows(page, rows, view)


def _has_steps(one: FindingView) -> bool:
    """Whether the fix of its server is in its block."""
    return one.step is not None and bool(one.step.steps)


def _rows(page: TextPage, found: list[FindingView], view: ReportView) -> None:
    if not found:
        return
    page.gap()
    for one in found[:_LISTED]:
        text_finding.one_row(page, one, has_same_fix=view.has_causes and view.has_same_fix(one))
    if len(found) > _LISTED:
        page.row(f"and {number(len(found) - _LISTED)} more; -v lists them")


# ---- after the findings


def _summary(page: TextPage, view: ReportView, tight: int) -> None:
    """Write in a few rows what the servers are and what was read; from ``tight`` 4 on without the account."""
    report = view.report
    slow = traffic_words.not_the_cache(report) if view.has_causes else None
    if slow is not None:
        page.cut_row([(f"{'slowest':<{_NARROW}}", KEY)], f"not caused by the cache: {traffic_words.split(slow)}")
    header.short(page, view, with_account=tight < 4)
    if is_mostly_unknown(report):
        page.facts([(f"{'read':<{_NARROW}}", KEY)], read(report), _NARROW)
    for said in remarks(report):
        page.prose([], said, 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)
    head = "not checked: "
    words = not_checked(report.not_evaluated, page.width - len(head))
    if words and not view.is_decided:
        page.facts([(head, KEY)], words, 2)


def _unknown(page: TextPage, report: Report) -> None:
    """Write the unrecognised lines, if requested; a path or a shape stays in one piece."""
    rows = unknown_lines(report)
    if rows:
        page.gap()
        for row in rows:
            page.row(row)
        page.gap()


def _everything(page: TextPage, view: ReportView) -> None:
    report = view.report
    header.show_header(page, report)
    if view.undecided:
        _seen(page, report)
    for at, turn in enumerate(report.slowest):
        words = f"{traffic_words.split(turn)}; {traffic_words.reason(turn, report)}"
        _keyed(page, "" if at else "slowest turns", words)
    for at, row in enumerate(traffic_words.client_rows(report, _CLIENTS)):
        _keyed(page, "" if at else "clients", f"{row.who}: {traffic_words.sentence(row)}")
    if report.not_evaluated:
        page.gap()
        _not_evaluated(page, report.not_evaluated, report.restart)
    page.gap()
    page.prose([], f"Read {read(report)}.", 2)
    for said in remarks(report):
        page.prose([], said, 2)
    if view.has_causes:
        page.prose([], view.verdict, 2)
    if report.ignored:
        page.prose([], switched_off(report.ignored), 2)


def _not_evaluated(page: TextPage, rules: list[NotEvaluated], restart: Restart | None) -> None:
    page.row(("Not checked", "bold"))
    for group in grouped(rules):
        page.facts(["  "], ", ".join(f"{rule.code} {rule.name}" for rule in group.rules), 2)
        page.prose(["    "], group.reason, 4)
        if group.covered(restart):
            continue  # by the restart below
        # A command is on a row of its own, so that it can be copied.
        page.prose(["    ", ("to check: ", "bold")], group.advice, 4)
        text_finding.commands(page, group.commands, 6)
    if restart is not None:
        page.prose(["  ", ("One restart ", "bold")], f"enables {', '.join(restart.codes)}. {restart.text}", 4)
        text_finding.commands(page, restart.command.splitlines(), 6)


def _last(page: TextPage, view: ReportView) -> None:
    """Write the last row: how many causes there are, and the one thing to do now."""
    if view.report.interrupted:
        page.row("Interrupted: this covers the part read until then.")
    if not view.has_causes:
        page.facts([], _to_be_sure(view) or view.verdict, 2)
        return
    said, step = view.tally, view.next_step
    now = f"Do now, for {view.next_step_of}:" if view.next_step_of else "Do now:"
    if step is None:
        page.facts([], f"{said}.", 2, KEY)
    elif step.command is None:
        page.prose([(f"{said}.", KEY), f" {now} "], step.text, 2)
    else:
        lead = f" {now} {step.text} " if step.text else f" {now} "
        rows = text_finding.rows_of_command(step.command, page.width - 2)
        if len(rows) == 1 and cell_len(f"{said}.{lead}{rows[0]}") <= page.width:
            page.row((f"{said}.", KEY), lead, (rows[0], COMMAND))
            return
        page.facts([], f"{said}.{lead.rstrip()}", 2, KEY)
        for row in rows:
            page.row("  ", (row, COMMAND))


def _to_be_sure(view: ReportView) -> str:
    if view.cannot_tell is None:
        return ""
    requests = view.report.totals.requests
    if not requests and any(session.answers for session in view.report.sessions):
        return "Cannot tell. Do now: pass the responses with usage (--responses)."
    what = "the last two turns" if requests else "a few minutes of log with traffic"
    if only_short(view.report):
        what = "a long prompt and the previous prompt"
    return f"Cannot tell. Do now: give {what}, or better the whole log."
