"""The timeline: what every slot did, request by request, in the coordinates of its drawing.

Covers columns of requests; the drawing itself is in templates/charts.svg.j2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cachedoctor.report.html.request_columns import EVENTS, KINDS, TOGETHER, Columns, RequestColumn, added, box, ticks
from cachedoctor.report.words.numbers import count, duration, number

WIDTH = 1040
LEFT, RIGHT = 132, 52
_PLOT = WIDTH - LEFT - RIGHT
_FINE = 10
"""Steps used to choose the top of the axis: with this many, the tallest bar nearly fills a lane."""
_WIDEST = 144
"""Column: a few requests do not fill the row."""
_LANES = 8
"""Slots drawn one by one, the busiest ones."""
_HEIGHTS = {1: 168, 2: 112, 3: 84}
_LOW = 60
_GAP, _ROW, _TOP = 22, 17, 16
_RESTARTS = 40
"""More restarts are counted, not drawn."""


@dataclass(slots=True)
class Lane:
    """One slot: its bars by kind, each kind one path."""

    name: str
    top: float
    base: float
    paths: dict[str, str]
    unknown: str
    """Boxes of requests whose reuse is unknown."""


@dataclass(slots=True)
class TimelineRow:
    """One row of marks."""

    name: str
    label: str
    y: float
    paths: str
    total: int


@dataclass(slots=True)
class Timeline:
    """All that is drawn."""

    height: float
    step: float
    columns: int
    per_column: int
    scale: float
    """Tokens at the top of a lane."""
    lanes: list[Lane]
    events: list[TimelineRow]
    restarts: list[tuple[float, int]]
    n_restarts: int
    totals: list[tuple[float, float, str]]
    """Numbers above bars, if they fit."""
    axis: list[tuple[float, str, str]]
    """Under the bars: number of a request, and when it was."""
    axis_y: float
    hits: list[tuple[float, str]]
    """Words for each column."""
    label: str = "in one request"
    width: int = WIDTH
    left: int = LEFT
    right: int = WIDTH - RIGHT
    hit_width: float = field(default=0.0)


def draw(columns: Columns) -> Timeline | None:
    """Lay out the timeline; None without requests."""
    if not columns.all:
        return None
    step = min(_PLOT / len(columns.all), _WIDEST)
    shown, others = _busiest(columns)
    scale = ticks(max((_tallest(columns.all, group) for group in [*shown, others] if group), default=0) or 1, _FINE)[-1]
    height = _HEIGHTS.get(len(shown) + bool(others), _LOW)
    lanes, totals, top = [], [], float(_TOP)
    for group in [*shown, *([others] if others else [])]:
        hidden = len(columns.lanes.names) - len(shown)
        name = count(hidden, "other slot") if group is others else columns.lanes.names[group[0]]
        lane = _lane(columns.all, group, name, top, height, scale, step)
        lanes.append(lane)
        totals += _totals(columns.all, group, lane, step, scale)
        top += height + _GAP
    events, bottom = _events(columns, top - _GAP + 14, step)
    restarts = [(LEFT + i * step, c.restarts) for i, c in enumerate(columns.all) if c.restarts]
    n = sum(c.restarts for c in columns.all)
    return Timeline(
        height=bottom + 44, step=step, columns=len(columns.all), per_column=columns.width, scale=scale, lanes=lanes,
        events=events, restarts=restarts if len(restarts) <= _RESTARTS else [], n_restarts=n,
        totals=totals, axis=_axis(columns.all, step), axis_y=bottom + 4,
        hits=[(LEFT + i * step, words(c, columns)) for i, c in enumerate(columns.all)],
        label="in one request" if columns.width == 1 else f"in {number(columns.width)} requests", hit_width=step,
    )  # fmt: skip


def _busiest(columns: Columns) -> tuple[list[list[int]], list[int]]:
    load: dict[int, int] = {}
    for column in columns.all:
        for lane, cell in column.cells.items():
            load[lane] = load.get(lane, 0) + cell.tokens.prompt
    order = sorted(load, key=lambda lane: (lane == TOGETHER, -load[lane], lane))
    room = _LANES if len(order) <= _LANES else _LANES - 1
    return [[lane] for lane in sorted(order[:room], key=lambda lane: columns.lanes.places[lane])], order[room:]


def _tallest(columns: list[RequestColumn], group: list[int]) -> int:
    return max(sum(c.cells[lane].tokens.prompt for lane in group if lane in c.cells) for c in columns)


def _lane(
    columns: list[RequestColumn], group: list[int], name: str, top: float, height: float, scale: float, step: float
) -> Lane:
    paths: dict[str, list[str]] = {kind: [] for kind in KINDS}
    unknown, base, wide = [], top + height, _bar(step)
    for i, column in enumerate(columns):
        cells = [column.cells[lane] for lane in group if lane in column.cells]
        x, y = LEFT + i * step + (step - wide) / 2, base
        split = added(cell.tokens for cell in cells)
        for kind, amount in zip(KINDS, split, strict=True):
            tall = amount / scale * height
            if amount:
                paths[kind].append(box(x, y - tall, wide, tall))
                y -= tall
        if any(cell.unknown for cell in cells):
            unknown.append(box(x, y - 12, wide, 11))
    return Lane(name, top, base, {kind: "".join(d) for kind, d in paths.items() if d}, "".join(unknown))


def _bar(step: float) -> float:
    return step - 10 if step > 40 else step * 0.78 if step > 6 else max(step * 0.9, 1.0)


def _totals(
    columns: list[RequestColumn], group: list[int], lane: Lane, step: float, scale: float
) -> list[tuple[float, float, str]]:
    if step < 34:
        return []
    found = []
    for i, column in enumerate(columns):
        cells = [column.cells[n] for n in group if n in column.cells]
        amount = sum(cell.tokens.prompt for cell in cells)
        y = lane.base - amount / scale * (lane.base - lane.top) - 5
        if amount:
            found.append((LEFT + (i + 0.5) * step, y, number(amount)))
        elif cells:
            found.append((LEFT + (i + 0.5) * step, y - 11, "unknown"))
    return found


def _events(columns: Columns, top: float, step: float) -> tuple[list[TimelineRow], float]:
    rows: list[TimelineRow] = []
    for name, label in EVENTS.items():
        total = sum(c.events[name] for c in columns.all)
        if not total:
            continue
        y, many = top + len(rows) * _ROW + _ROW / 2, max(c.events[name] for c in columns.all)
        size = min(4.5, max(step * 0.42, 1.4))
        marks = []
        for i, n in enumerate(c.events[name] for c in columns.all):
            if n and columns.width == 1:
                marks.append(_mark(name, LEFT + (i + 0.5) * step, y, size))
            elif n:  # a column of many requests: how many marks says more than that there are some
                tall = max((_ROW - 4) * n / many, 1.2)
                marks.append(box(LEFT + i * step, y + (_ROW - 4) / 2 - tall, _bar(step), tall))
        rows.append(TimelineRow(name, label, y, "".join(marks), total))
    return rows, top + len(rows) * _ROW


def _mark(name: str, x: float, y: float, s: float) -> str:
    """Draw a distinct shape for each event, so that it is recognisable without its colour."""
    if name == "created":  # a dot, drawn as a diamond
        return f"M{x - s:.1f} {y:.1f}l{s:.1f} {-s:.1f}l{s:.1f} {s:.1f}l{-s:.1f} {s:.1f}z"
    if name in ("restored", "loaded"):  # a triangle upwards: back into the slot
        return f"M{x - s:.1f} {y + s:.1f}l{s:.1f} {-2 * s:.1f}l{s:.1f} {2 * s:.1f}z"
    if name == "saved":  # downwards: out of the slot
        return f"M{x - s:.1f} {y - s:.1f}l{s:.1f} {2 * s:.1f}l{s:.1f} {-2 * s:.1f}z"
    thin = s / 3  # a cross
    return box(x - s, y - thin, 2 * s, 2 * thin) + box(x - thin, y - s, 2 * thin, 2 * s)


def _axis(columns: list[RequestColumn], step: float) -> list[tuple[float, str, str]]:
    """A label needs about 104 units of width."""
    every = max(1, -(-104 // int(max(step, 1))))
    found = []
    for i, column in enumerate(columns):
        if i % every == 0:
            found.append((LEFT + (i + 0.5) * step, f"#{number(column.first.index)}", when(column)))
    return found


def when(column: RequestColumn) -> str:
    """Say when a column began, if the log shows it."""
    row = column.first
    if row.time is not None:
        return row.time.partition("T")[2][:8]
    return "" if row.uptime_ms is None else f"after {duration(row.uptime_ms)}"


def words(column: RequestColumn, columns: Columns) -> str:
    """Say everything of a column."""
    row, split = column.first, column.tokens
    if column.count == 1:
        head = f"request #{number(row.index)}, {columns.lanes.names[columns.lanes.of(row)]}, task {number(row.task)}"
    else:
        head = f"{count(column.count, 'request')}, #{number(row.index)} to #{number(column.last.index)}"
    parts = [f"{head}{', ' + when(column) if when(column) else ''}: {count(split.prompt, 'prompt token')}"]
    if not split.prompt and column.unknown:
        parts = [f"{head}: how much was reused is unknown"]
    parts += [
        f"{number(n)} {kind}" for kind, n in zip(("reused", "recomputed", "new", "unsure"), split, strict=True) if n
    ]
    parts += [f"{EVENTS[name]}: {number(n)}" for name, n in column.events.items() if n]
    if column.restarts:
        parts.append(
            "the server restarted before this request" if column.count == 1 else count(column.restarts, "restart")
        )
    return "; ".join(parts)
