"""The rows of the table and how they are printed, one by one as they are measured."""

from __future__ import annotations

from typing import NamedTuple

import process

COLUMNS = ("part", "case", "wall s", "CPU s", "peak MB", "measured", "ratio", "the ratio is")
WIDTHS = (10, 48, 8, 8, 8, 42, 8, 0)
RIGHT = {"wall s", "CPU s", "peak MB", "ratio"}
MARK = "!"


class Row(NamedTuple):
    """One measurement. What it does not have is None or empty."""

    part: str
    case: str
    usage: process.Usage | None = None
    measured: str = ""
    """Numbers with their units, in words."""
    ratio: float | None = None
    meaning: str = ""
    """What the ratio is: of what to what."""
    limit: float | None = None
    """A ratio above it is marked."""

    @property
    def is_marked(self) -> bool:
        return self.ratio is not None and self.limit is not None and self.ratio > self.limit

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of ``COLUMNS``."""
        wall = cpu = peak = ""
        if self.usage is not None:
            wall, cpu, peak = f"{self.usage.seconds:.2f}", f"{self.usage.cpu:.2f}", _peak(self.usage.peak)
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}" if self.ratio < 1 else f"{self.ratio:.2f}"
        return self.part, self.case, wall, cpu, peak, self.measured, ratio + MARK * self.is_marked, self.meaning


def plain(cells: tuple[str, ...]) -> str:
    """A line in columns."""
    padded = [
        f"{cell:>{width}}" if name in RIGHT else f"{cell:{width}}"
        for name, cell, width in zip(COLUMNS, cells, WIDTHS, strict=True)
    ]
    return "  ".join(padded).rstrip()


def markdown(cells: tuple[str, ...]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def head(is_markdown: bool) -> str:
    """The line or lines above the rows."""
    if not is_markdown:
        return plain(COLUMNS)
    return f"{markdown(COLUMNS)}\n| " + " | ".join("--:" if name in RIGHT else "---" for name in COLUMNS) + " |"


def _peak(megabytes: float) -> str:
    floor = process.floor()
    return f"{megabytes:.0f}" if megabytes > floor else f"<{floor:.0f}"
