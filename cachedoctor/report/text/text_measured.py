"""What logs without requests measured, as rows and tables of the text report. Knows Page; decides no words."""

from __future__ import annotations

from cachedoctor.model import Session
from cachedoctor.report.text import text_table
from cachedoctor.report.text.page import Page
from cachedoctor.report.words.measured_table import lowest
from cachedoctor.report.words.measurements import grid, largest, said
from cachedoctor.report.words.numbers import count, number

MOST = 5
"""Servers; of more, those of which most was measured."""


def show(page: Page, found: list[tuple[str, Session]]) -> None:
    """Write what was measured of each session, behind its name; the name is empty where there is only one."""
    names = {session.index: name for name, session in found}
    for session in largest([session for _, session in found], MOST):
        if names[session.index]:
            page.row((names[session.index], "bold"))
        _session(page, session)
    if len(found) > MOST:
        page.row(f"and {count(len(found) - MOST, 'other server')} with measurements")


def short(page: Page, found: list[tuple[str, Session]]) -> None:
    """Write in a row each what was measured of the session with most measurements, and how many others there are."""
    names = {session.index: name for name, session in found}
    rates = lowest(found)
    if rates:
        page.facts([("hit rates ", "bold")], rates, 10)
    for session in largest([session for _, session in found], 1):
        if names[session.index]:
            page.row((names[session.index], "bold"))
        for key, words in said(session):
            page.facts([(f"{key:<10}", "bold")], words, 10)
        table = grid(session)
        if table is not None or len(found) > 1:
            others = f"; {count(len(found) - 1, 'other server')}" if len(found) > 1 else ""
            page.facts([("table     ", "bold")], f"-v shows it{others}", 10)


def _session(page: Page, session: Session) -> None:
    for key, words in said(session):
        page.facts([(f"{key:<10}", "bold")], words, 10)
    table = grid(session)
    if table is None:
        return
    text_table.show(page, table.key, table.headings, table.rows)
    if table.more:
        page.row(f"and {number(table.more)} more")
