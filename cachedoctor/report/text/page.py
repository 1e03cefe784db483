"""A page of text: rows, wrapped and coloured, tables of numbers, no control characters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.report.text.text_safe import clipped, cut, rows, visible
from cachedoctor.report.words.measured_table import Heading, MeasuredCells

ERROR, WARNING, NOTE = "bold color(163)", "bold color(131)", "bold color(63)"
COMMAND, OLD, NEW = "color(29)", "bold color(131)", "bold color(29)"
GUTTER, BARS = "color(243)", "color(63)"
KEY = "bold"
SEVERITY = {"error": ERROR, "warning": WARNING, "note": NOTE}
"""Style of the word by severity."""
ALL = (ERROR, WARNING, NOTE, COMMAND, OLD, NEW, GUTTER, BARS)
"""Every style with a colour."""
_NAMED = {
    "red": "color(131)",
    "green": "color(29)",
    "yellow": "color(131)",
    "blue": "color(63)",
    "cyan": "color(63)",
    "magenta": "color(163)",
    "dim": "color(243)",
}
"""Placeholders for the colours that each theme defines."""


@lru_cache(maxsize=64)
def readable(style: str) -> str:
    """Return the style with colours of the palette in the place of those that a theme decides: ``bold green``."""
    return " ".join(_NAMED.get(word, word) for word in style.split())


_COMMAND = late(r"\s*(?:::|##)")
"""Line prefixes that a CI system interprets as commands when they appear in its log."""
_PROSE = 100
"""Cells: sentences on wider rows are hard to read."""
_ROOMY = 48
"""Cells: with fewer for a line of a log, each counts."""


class Link(NamedTuple):
    """Text that leads to ``address``, a URI of printable ASCII."""

    text: str
    style: str
    address: str


Part = str | tuple[str, str] | Link
"""Text, or text and its style, or a link."""


class TextPage:
    """Writes to ``out`` rows of at most ``width`` cells, except for what has to stay whole."""

    def __init__(
        self, out: TextIO, width: int, color: bool = False, ascii_only: bool = False, pages: str | None = None
    ) -> None:
        self.width = width
        self.pages = pages
        """What comes before the address of a rule's page to make it a link; None if there are no links."""
        self.ascii_only = ascii_only
        self._empty = True
        self._out = out
        # Everything is said, nothing is asked of the environment: the same report gives the same bytes.
        self._console = Console(
            file=out, width=width, color_system="256" if color else None, force_terminal=color, no_color=not color,
            force_jupyter=False, legacy_windows=False, highlight=False, markup=False, emoji=False,
        )  # fmt: skip

    def gap(self) -> None:
        """Write an empty row between two parts, none at the top."""
        if not self._empty:
            self._console.print()

    def row(self, *parts: Part) -> None:
        """Write one row as it is, however long: a command or a path must be copyable."""
        # Text objects are never read as markup; soft_wrap keeps rich from breaking or cutting them.
        text = Text()
        for part in parts:
            words, style = (part, "") if isinstance(part, str) else part[:2]
            shown = Text(visible(words, self.ascii_only), readable(style))
            if isinstance(part, Link):
                self._console.print(text, soft_wrap=True, end="")
                self._linked(shown, part.address)
                text = Text()
            else:
                text.append_text(shown)
        text.rstrip()
        if _COMMAND.match(text.plain):
            text = Text("| ") + text
        self._empty = False
        self._console.print(text, soft_wrap=True)

    def _linked(self, shown: Text, address: str) -> None:
        # rich can write links, too, but gives each a random number: the same report would not give the same bytes.
        self._out.write(f"\x1b]8;;{visible(address, True)}\x1b\\")
        self._console.print(shown, soft_wrap=True, end="")
        self._out.write("\x1b]8;;\x1b\\")

    def prose(self, head: list[Part], body: str, indent: int, style: str = "") -> None:
        """Write ``head`` and a sentence, broken at spaces, later rows indented by ``indent``."""
        self._wrapped(head, body, indent, style, min(self.width, _PROSE))

    def facts(self, head: list[Part], body: str, indent: int, style: str = "") -> None:
        """Write a list of facts like ``prose``, but as wide as the page: nobody reads it as a sentence."""
        self._wrapped(head, body, indent, style, self.width)

    def cut_row(self, head: list[Part], body: str, style: str = "") -> None:
        """Write one row; what does not fit at its end is left out."""
        used = sum(cell_len(visible(p if isinstance(p, str) else p[0], self.ascii_only)) for p in head)
        self.row(*head, (clipped(body, self.width - used, self.ascii_only), style))

    def _wrapped(self, head: list[Part], body: str, indent: int, style: str, width: int) -> None:
        used = sum(cell_len(visible(p if isinstance(p, str) else p[0], self.ascii_only)) for p in head)
        first, *others = rows(visible(body, self.ascii_only), width - used, width - indent)
        self.row(*head, (first, style))
        for other in others:
            self.row(" " * indent, (other, style))

    def excerpt(self, head: list[Part], gutter: list[Part], text: str, room: int) -> None:
        """Write a log line after ``head``, further rows after ``gutter``; the middle of a long line is left out."""
        shown = cut(text, max(2 * room, 240), self.ascii_only)
        indent = 4 if room >= _ROOMY else 2
        first, *others = rows(shown, room, room - indent, fold=True)
        self.row(*head, first)
        for other in others:
            self.row(*gutter, " " * indent, other)


_GAP = 2
"""Cells between two columns."""


def fits(width: int, key: str, headings: Sequence[Heading], rows: Sequence[MeasuredCells]) -> bool:
    """Return whether all columns of a table fit side by side in ``width`` cells."""
    widths, left = _columns(width, key, headings, rows)
    return len(_blocks(widths, width - left)) == 1


def show_table(page: TextPage, key: str, headings: Sequence[Heading], rows: Sequence[MeasuredCells]) -> None:
    """Write ``rows``; ``key`` is above their names.

    A name that is too wide gets its own row.
    """
    widths, left = _columns(page.width, key, headings, rows)
    for at, block in enumerate(_blocks(widths, page.width - left)):
        if at:
            page.gap()
        _block(page, key if not at else "", left, [(headings[i], widths[i]) for i in block])
        for row in rows:
            head = visible(row.name)
            if cell_len(head) > left:
                page.row(head)
                head = ""
            cells = "".join(" " * _GAP + _right(row.cells[i], widths[i]) for i in block)
            page.row(head + " " * (left - cell_len(head)) + cells)


def _columns(width: int, key: str, headings: Sequence[Heading], rows: Sequence[MeasuredCells]) -> tuple[list[int], int]:
    """Return the cells that each column takes, and those of the names."""
    widths = [
        max(cell_len(heading.name), cell_len(heading.unit), *(cell_len(row.cells[at]) for row in rows))
        for at, heading in enumerate(headings)
    ]
    most = max(width // 3, cell_len(key))
    names = (cell_len(visible(row.name)) for row in rows)
    return widths, max([cell_len(key), *(name for name in names if name <= most)])


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


def _block(page: TextPage, key: str, left: int, columns: Sequence[tuple[Heading, int]]) -> None:
    for which in ("name", "unit"):
        words = [" " * _GAP + _right(getattr(heading, which), width) for heading, width in columns]
        if "".join(words).strip():
            first = key if which == "name" else ""
            page.row((first + " " * (left - cell_len(first)) + "".join(words), "bold" if which == "name" else ""))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
