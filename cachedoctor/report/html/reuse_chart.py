"""Reuse over time, prompt speed against depth, and series of samples, in drawing coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from cachedoctor.model import CacheSample, PrefillBatch, RequestRow
from cachedoctor.report.html.request_columns import Columns, box, short, ticks
from cachedoctor.report.html.timeline import words
from cachedoctor.report.words.measured_table import rate
from cachedoctor.report.words.numbers import count, number, percent

WIDTH, HEIGHT = 500, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 22, 30, 42
_REUSE_CHART_WIDE, _REUSE_CHART_TALL = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


@dataclass(slots=True)
class Chart:
    """Axes and what lies between them."""

    xs: list[tuple[float, str]]
    ys: list[tuple[float, str]]
    line: str
    dots: str
    area: str = ""
    hits: tuple[tuple[float, float, str], ...] = ()
    notes: tuple[str, ...] = ()
    level: float | None = None
    """Height of the line for all requests together."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def over_time(columns: Columns, overall: float | None) -> Chart | None:
    """Lay out the share of prompt tokens that was reused; None if it is unknown of all requests."""
    step = _REUSE_CHART_WIDE / max(len(columns.all), 1)
    runs: list[list[tuple[float, float]]] = [[]]
    hits = []
    for i, column in enumerate(columns.all):
        split = column.tokens
        if split.prompt:
            runs[-1].append((LEFT + (i + 0.5) * step, TOP + _REUSE_CHART_TALL * (1 - split.reused / split.prompt)))
        elif runs[-1]:
            runs.append([])  # a gap, because unknown is not 0
        hits.append((LEFT + i * step, step, words(column, columns)))
    runs = [run for run in runs if run]
    if not runs:
        return None
    base = TOP + _REUSE_CHART_TALL
    every = max(1, len(columns.all) // 5)
    chosen = [(i, c) for i, c in enumerate(columns.all) if i % every == 0 and i * step < _REUSE_CHART_WIDE - 30]
    return Chart(
        xs=[(LEFT + (i + 0.5) * step, f"#{number(c.first.index)}") for i, c in chosen],
        ys=[(TOP + _REUSE_CHART_TALL * (1 - share / 100), f"{share} %") for share in (0, 25, 50, 75, 100)],
        line="".join(_line(run) for run in runs),
        dots="".join(f"M{x:.1f} {y:.1f}h0" for run in runs for x, y in run) if len(columns.all) <= 80 else "",
        area="".join(f"{_line(run)}L{run[-1][0]:.1f} {base}L{run[0][0]:.1f} {base}z" for run in runs),
        hits=tuple(hits),
        level=None if overall is None else TOP + _REUSE_CHART_TALL * (1 - overall),
    )


def _line(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


class Speed:
    """A sample of at most some hundred requests, evenly over the log: depth of the prompt, time per computed token."""

    MOST = 1200
    LEAST = 32
    """Computed tokens: with fewer, a request's fixed cost outweighs the effect of its depth."""

    def __init__(self) -> None:
        self.every = 1
        self.short = 0
        """Requests with too few computed tokens."""
        self._seen = 0
        self._points: list[tuple[int, float]] = []

    def add(self, row: RequestRow) -> None:
        """Take a request."""
        if row.prompt_ms is None or not row.prompt_tokens or not row.processed_tokens:
            return
        if row.processed_tokens < self.LEAST:
            self.short += 1
            return
        if self._seen % self.every == 0:
            self._points.append((row.prompt_tokens, row.prompt_ms / row.processed_tokens))
            if len(self._points) > self.MOST:
                self._points = self._points[::2]
                self.every *= 2
        self._seen += 1

    def draw(self) -> Chart | None:
        """Lay out the sample; None if the log has no prompt times."""
        if not self._points:
            return None
        points = sorted(self._points)
        slowest = sorted(ms for _, ms in points)
        top = slowest[-1] if slowest[-1] <= 4 * slowest[len(slowest) * 95 // 100] else slowest[len(slowest) * 95 // 100]
        xs, ys = ticks(points[-1][0], 5), ticks(top * 1.05)
        inside = [(d, ms) for d, ms in points if ms <= ys[-1]]
        return Chart(
            xs=[(_x(x, xs), short(x)) for x in xs],
            ys=[(_y(y, ys), f"{y:.3g}") for y in ys],
            line=_medians(inside, xs, ys),
            dots="".join(f"M{_x(d, xs):.1f} {_y(ms, ys):.1f}h0" for d, ms in inside),
            notes=tuple(self._notes(len(points) - len(inside))),
        )

    def _notes(self, above: int) -> list[str]:
        notes = []
        if self.every > 1:
            notes.append(f"every {self.every}th request is drawn")
        if self.short:
            notes.append(f"{count(self.short, 'request')} with fewer than {self.LEAST} computed tokens left out")
        if above:
            notes.append(f"{count(above, 'slower request')} above the chart")
        return notes


def _x(depth: float, xs: list[float]) -> float:
    return LEFT + _REUSE_CHART_WIDE * depth / xs[-1]


def _y(ms: float, ys: list[float]) -> float:
    return TOP + _REUSE_CHART_TALL * (1 - ms / ys[-1])


def _medians(points: list[tuple[int, float]], xs: list[float], ys: list[float]) -> str:
    """Draw the median over up to ten groups of equally many requests; too few requests have no trend."""
    if len(points) < 40:
        return ""
    size = -(-len(points) // 10)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return _line([(_x(median(d for d, _ in g), xs), _y(median(ms for _, ms in g), ys)) for g in groups])


_CELLS = 200
"""Steps or bars of a drawing."""
_SERIES_WIDE, _SERIES_TALL = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


class _Cell(NamedTuple):
    """Neighbours that are drawn as one."""

    first: int
    """Number of its first line."""
    last: int
    rate: float | None = None
    """Last hit rate."""
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
    """Lines of the log that a step or bar represents."""
    cached: str = ""
    new: str = ""


class ChartSeries:
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
        """Draw hit rates as steps, with gaps where none is printed; None if none is printed at all."""
        if all(cell.rate is None for cell in self._cells):
            return None
        step = _SERIES_WIDE / len(self._cells)
        parts, high = [], None
        for at, cell in enumerate(self._cells):
            x = LEFT + at * step
            y = None if cell.rate is None else TOP + _SERIES_TALL * (1 - cell.rate)
            if y is not None:
                parts.append(f"M{x:.1f} {y:.1f}" if high is None else f"V{y:.1f}")
                parts.append(f"H{x + step:.1f}")
            high = y
        words = [f"{cell.place}: " + ("no hit rate" if cell.rate is None else rate(cell.rate)) for cell in self._cells]
        ys = [(TOP + _SERIES_TALL * (1 - share / 100), f"{share} %") for share in (0, 25, 50, 75, 100)]
        return Drawing(self._chart(ys, words, "".join(parts)), self._each)

    def sums(self) -> Drawing | None:
        """Draw batches as bars of reused and computed tokens; None if there are no tokens."""
        most = max((cell.cached + cell.new for cell in self._cells), default=0)
        if not most:
            return None
        marks = ticks(most)
        step, unit = _SERIES_WIDE / len(self._cells), _SERIES_TALL / marks[-1]
        cached, new, words = [], [], []
        for at, cell in enumerate(self._cells):
            x, wide, base = LEFT + (at + 0.1) * step, 0.8 * step, TOP + _SERIES_TALL
            cached.append(box(x, base - cell.cached * unit, wide, cell.cached * unit) if cell.cached else "")
            top = base - (cell.cached + cell.new) * unit
            new.append(box(x, top, wide, cell.new * unit) if cell.new else "")
            whole = cell.cached + cell.new
            share = f", {percent(cell.cached, whole)} reused" if whole else ""
            words.append(f"{cell.place}: {number(cell.cached)} reused, {number(cell.new)} computed{share}")
        ys = [(TOP + _SERIES_TALL - mark * unit, short(mark)) for mark in marks]
        return Drawing(self._chart(ys, words, ""), self._each, "".join(cached), "".join(new))

    def _chart(self, ys: list[tuple[float, str]], words: list[str], line: str) -> Chart:
        step = _SERIES_WIDE / len(self._cells)
        every = max(1, len(self._cells) // 4)
        xs = [
            (LEFT + (at + 0.5) * step, number(cell.first))
            for at, cell in enumerate(self._cells)
            if at % every == 0 and (at + 0.5) * step < _SERIES_WIDE - 30
        ]
        hits = tuple((LEFT + at * step, step, said) for at, said in enumerate(words))
        return Chart(xs=xs, ys=ys, line=line, dots="", hits=hits)
