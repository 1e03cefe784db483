"""Samples and batches along the log, in the coordinates of their drawings: rates as steps, batches as bars.

Bounded whatever their number: where there are too many, neighbours become one. Knows samples and batches, no period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cachedoctor.model import CacheSample, PrefillBatch
from cachedoctor.report.html.axis import box, short, ticks
from cachedoctor.report.html.reuse_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart
from cachedoctor.report.words.measured_table import rate
from cachedoctor.report.words.numbers import number, percent

_CELLS = 200
"""Steps or bars of a drawing."""
_WIDE, _TALL = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


class _Cell(NamedTuple):
    """Neighbours that are drawn as one."""

    first: int
    """Line."""
    last: int
    rate: float | None = None
    """The last one."""
    cached: int = 0
    new: int = 0

    def joined(self, later: _Cell) -> _Cell:
        return _Cell(
            self.first, later.last, self.rate if later.rate is None else later.rate, self.cached + later.cached,
            self.new + later.new,
        )  # fmt: skip

    @property
    def place(self) -> str:
        return f"line {self.first:,}" if self.first == self.last else f"lines {self.first:,} to {self.last:,}"


@dataclass(slots=True)
class Drawing:
    """A chart, and the bars in it, where it has some."""

    chart: Chart
    each: int
    """Lines of the log that a step or bar stands for."""
    cached: str = ""
    new: str = ""


class Series:
    """Takes the samples of one engine, or the batches of one rank, in the order of their lines."""

    def __init__(self) -> None:
        self.count = 0
        self._each = 1
        self._cells: list[_Cell] = []

    def add(self, row: CacheSample | PrefillBatch) -> None:
        """Take the next one."""
        if isinstance(row, CacheSample):
            cell = _Cell(row.line, row.line, row.hit_rate)
        else:
            cell = _Cell(row.line, row.line, None, row.cached_tokens or 0, row.new_tokens or 0)
        if self.count % self._each:
            cell = self._cells.pop().joined(cell)
        self._cells.append(cell)
        self.count += 1
        if len(self._cells) > _CELLS:
            left = self._cells
            self._cells = [a.joined(b) for a, b in zip(left[::2], left[1::2], strict=False)] + left[len(left) & ~1 :]
            self._each *= 2

    def rates(self) -> Drawing | None:
        """Draw hit rates as steps, with gaps where none is printed; None where none is at all."""
        if all(cell.rate is None for cell in self._cells):
            return None
        step = _WIDE / len(self._cells)
        parts, high = [], None
        for at, cell in enumerate(self._cells):
            x = LEFT + at * step
            y = None if cell.rate is None else TOP + _TALL * (1 - cell.rate)
            if y is not None:
                parts.append(f"M{x:.1f} {y:.1f}" if high is None else f"V{y:.1f}")
                parts.append(f"H{x + step:.1f}")
            high = y
        words = [f"{cell.place}: " + ("no hit rate" if cell.rate is None else rate(cell.rate)) for cell in self._cells]
        ys = [(TOP + _TALL * (1 - share / 100), f"{share} %") for share in (0, 25, 50, 75, 100)]
        return Drawing(self._chart(ys, words, "".join(parts)), self._each)

    def sums(self) -> Drawing | None:
        """Draw batches as bars of reused and computed tokens; None where there are no tokens."""
        most = max((cell.cached + cell.new for cell in self._cells), default=0)
        if not most:
            return None
        marks = ticks(most)
        step, unit = _WIDE / len(self._cells), _TALL / marks[-1]
        cached, new, words = [], [], []
        for at, cell in enumerate(self._cells):
            x, wide, base = LEFT + (at + 0.1) * step, 0.8 * step, TOP + _TALL
            cached.append(box(x, base - cell.cached * unit, wide, cell.cached * unit) if cell.cached else "")
            top = base - (cell.cached + cell.new) * unit
            new.append(box(x, top, wide, cell.new * unit) if cell.new else "")
            whole = cell.cached + cell.new
            share = f", {percent(cell.cached, whole)} reused" if whole else ""
            words.append(f"{cell.place}: {number(cell.cached)} reused, {number(cell.new)} computed{share}")
        ys = [(TOP + _TALL - mark * unit, short(mark)) for mark in marks]
        return Drawing(self._chart(ys, words, ""), self._each, "".join(cached), "".join(new))

    def _chart(self, ys: list[tuple[float, str]], words: list[str], line: str) -> Chart:
        step = _WIDE / len(self._cells)
        every = max(1, len(self._cells) // 4)
        xs = [
            (LEFT + (at + 0.5) * step, number(cell.first))
            for at, cell in enumerate(self._cells)
            if at % every == 0 and (at + 0.5) * step < _WIDE - 30
        ]
        hits = tuple((LEFT + at * step, step, said) for at, said in enumerate(words))
        return Chart(xs=xs, ys=ys, line=line, dots="", hits=hits)
