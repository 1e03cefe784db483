"""A table of numbers on a page: aligned, and no number is ever cut; columns that do not fit stand in a further block.

Knows cells and widths. Knows no report.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from cachedoctor.report.text.page import Page
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words.table_parts import Heading, Row

_GAP = 2
"""Cells between two columns."""


def show(page: Page, key: str, headings: Sequence[Heading], rows: Sequence[Row]) -> None:
    """Write ``rows``; ``key`` stands above their names. A name that needs too much room gets a row of its own."""
    widths = [
        max(cell_len(heading.name), cell_len(heading.unit), *(cell_len(row.cells[at]) for row in rows))
        for at, heading in enumerate(headings)
    ]
    names = [visible(row.name) for row in rows]
    most = max(page.width // 3, cell_len(key))
    left = max([cell_len(key), *(w for w in map(cell_len, names) if w <= most)])
    for at, block in enumerate(_blocks(widths, page.width - left)):
        if at:
            page.gap()
        _block(page, key if not at else "", left, [(headings[i], widths[i]) for i in block])
        for name, row in zip(names, rows, strict=True):
            head = name
            if cell_len(name) > left:
                page.row(name)
                head = ""
            cells = "".join(" " * _GAP + _right(row.cells[i], widths[i]) for i in block)
            page.row(head + " " * (left - cell_len(head)) + cells)


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns side by side, as many as fit, at least one."""
    blocks: list[list[int]] = [[]]
    used = 0
    for at, width in enumerate(widths):
        used += width + _GAP
        if blocks[-1] and used > room:
            blocks.append([])
            used = width + _GAP
        blocks[-1].append(at)
    return blocks


def _block(page: Page, key: str, left: int, columns: Sequence[tuple[Heading, int]]) -> None:
    for which in ("name", "unit"):
        words = [" " * _GAP + _right(getattr(heading, which), width) for heading, width in columns]
        if "".join(words).strip():
            first = key if which == "name" else ""
            page.row((first + " " * (left - cell_len(first)) + "".join(words), "bold" if which == "name" else ""))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
