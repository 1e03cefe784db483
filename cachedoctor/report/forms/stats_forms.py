"""Sums over many logs as text, markdown, csv and JSON (``cachedoctor.stats/1``, frozen).

Knows Stats and the forms. Knows nothing of how a number came about.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import MeasuredRow, Stats, StatsInput, StatsRow, StatsTable
from cachedoctor.model.tool import Tool
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.markdown.markdown_safe import cell, table
from cachedoctor.report.secrets import hidden
from cachedoctor.report.text import text_table
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words import stats_cells
from cachedoctor.report.words.numbers import count
from cachedoctor.report.words.table_parts import Row

Form = Literal["text", "json", "csv", "markdown"]
FORMATS: tuple[Form, ...] = get_args(Form)
_MOST = 40
"""Groups that a person reads; the other forms have all."""
_VALUES = StatsRow.__struct_fields__[1:]

_FORMULA = re.compile(r"(;\s*)([=+@-])")


class StatsDocument(msgspec.Struct):
    """Sums over the requests of many logs. Unknown values are None."""

    schema: Literal["cachedoctor.stats/1"]
    tool: Tool
    inputs: list[StatsInput]
    tables: list[StatsTable]
    measured: list[MeasuredRow] = []
    """Servers whose logs have no requests. Added after the first release of v1."""


def write(form: Form, stats: Stats, out: IO[bytes], look: Look) -> None:
    """Write the sums in one of the forms."""
    forms: dict[Form, Callable[[Stats, Look], bytes]] = {
        "text": _text, "json": _json, "csv": _csv, "markdown": _markdown,
    }  # fmt: skip
    out.write(forms[form](sanitize.stats(stats), look))


def _text(stats: Stats, look: Look) -> bytes:
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    for shown in _with_rows(stats):
        page.gap()
        rows = [Row(stats_cells.name(row, shown.by), stats_cells.cells(row)) for row in shown.rows[:_MOST]]
        text_table.show(page, stats_cells.title(shown.by), stats_cells.HEADINGS, rows)
        if len(shown.rows) > _MOST:
            page.prose([], f"and {count(len(shown.rows) - _MOST, 'group')} more: --format csv has all.", 0)
    if stats.measured:
        page.gap()
        rows = [Row(stats_cells.measured_name(row), stats_cells.measured_cells(row)) for row in stats.measured[:_MOST]]
        text_table.show(page, stats_cells.MEASURED, stats_cells.MEASURED_HEADINGS, rows)
    page.gap()
    note = stats_cells.unsaid(stats.tables[0].rows)
    if note:
        page.prose([], note, 0)
    page.prose([], _read(stats), 0)
    return look.encode(text.getvalue())


def _with_rows(stats: Stats) -> list[StatsTable]:
    """The tables of requests, unless there are only servers without any."""
    return [table for table in stats.tables if not stats.measured or any(row.requests for row in table.rows)]


def _read(stats: Stats) -> str:
    kinds = {kind: sum(i.kind == kind for i in stats.inputs) for kind in ("log", "report", "table")}
    words = ", ".join(count(number, kind) for kind, number in kinds.items() if number)
    failed = sum(i.error is not None for i in stats.inputs)
    return f"Read {words or 'nothing'}{f'; {failed:,} of them not to the end' if failed else ''}."


def _json(stats: Stats, _: Look) -> bytes:
    tool = Tool("cachedoctor", stats.tool_version)
    document = StatsDocument("cachedoctor.stats/1", tool, stats.inputs, stats.tables, stats.measured)
    return msgspec.json.encode(document) + b"\n"


def _csv(stats: Stats, _: Look) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["by", "group", *_VALUES])
    for shown in stats.tables:
        for row in shown.rows:
            writer.writerow([shown.by or "all", _unrun(row.group), *(getattr(row, name) for name in _VALUES)])
    for measured in stats.measured:
        kind = f"{measured.by or 'all'}, {stats_cells.PIECES[measured.piece]}"
        writer.writerow([kind, _unrun(measured.group), *(getattr(measured, name, None) for name in _VALUES)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _unrun(group: str | None) -> str | None:
    """What begins like a formula would be run by a spreadsheet, behind a semicolon as well in many countries."""
    if group is None:
        return None
    seen = _FORMULA.sub(r"\1'\2", visible(group))
    return f"'{seen}" if seen.startswith(("=", "+", "-", "@")) else seen


def _markdown(stats: Stats, _: Look) -> bytes:
    parts = [_markdown_table(shown) for shown in _with_rows(stats)]
    if stats.measured:
        heads = [f"{h.name}, {h.unit}" if h.unit else h.name for h in stats_cells.MEASURED_HEADINGS]
        rows = [[cell(hidden(stats_cells.measured_name(r))), *stats_cells.measured_cells(r)] for r in stats.measured]
        parts.append(table([stats_cells.MEASURED, *heads], rows, 1))
    note = stats_cells.unsaid(stats.tables[0].rows)
    words = "\n\n".join([*parts, *([note] if note else []), _read(stats)])
    return (words + "\n").encode("utf-8", "backslashreplace")


def _markdown_table(shown: StatsTable) -> str:
    heads = [f"{h.name}, {h.unit}" if h.unit else h.name for h in stats_cells.HEADINGS]
    rows = [[cell(hidden(stats_cells.name(row, shown.by))), *stats_cells.cells(row)] for row in shown.rows]
    return table([stats_cells.title(shown.by), *heads], rows, 1)
