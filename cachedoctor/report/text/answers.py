"""Parts of the text report that answer at once: the cache works, it cannot be told, what to do now."""

from __future__ import annotations

from rich.cells import cell_len

from cachedoctor.model import Report
from cachedoctor.report.text import command_rows
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.palette import COMMAND, KEY
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import client_words, coverage, do_now, slow_words, verdicts

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
        _keyed(page, "slowest turn", slow_words.split(turn))
        _keyed(page, "", slow_words.reason(turn, report))


def cannot_tell(page: Page, report: Report, told: coverage.CannotTell, verbose: bool) -> None:
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
        _keyed(page, "" if at else "slowest turns", f"{slow_words.split(turn)}; {slow_words.reason(turn, report)}")


def clients(page: Page, report: Report) -> None:
    """Write what the requests of each client took, where there are several."""
    for at, row in enumerate(client_words.rows(report, _CLIENTS)):
        _keyed(page, "" if at else "clients", f"{row.who}: {client_words.sentence(row)}")


def slow_beside(page: Page, report: Report) -> None:
    """Write a row about a slow request that the causes above do not explain."""
    turn = slow_words.not_the_cache(report)
    if turn is not None:
        page.cut_row([(f"{'slowest':<10}", KEY)], f"{slow_words.split(turn)}; not the cache")


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
        rows = command_rows.rows(fix.command, page.width - 2)
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
