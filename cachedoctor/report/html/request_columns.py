"""Requests in order, folded into so many columns as a chart can show: a log of any length takes the same memory.

Knows requests and slots; knows no drawing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cachedoctor.model import RequestRow
from cachedoctor.report.html.lanes import Lanes
from cachedoctor.report.html.token_split import NONE, Tokens, added, tokens

MOST = 240
"""Columns; when they are full, each two become one."""
TOGETHER = 64
"""Slots told apart; further ones go together, under this number."""

EVENTS = {
    "created": "checkpoints created",
    "restored": "checkpoints restored",
    "erased": "checkpoints erased",
    "saved": "saved to RAM",
    "loaded": "restored from RAM",
}
"""What can happen to a slot when a request takes it, in words."""


@dataclass(slots=True)
class Cell:
    """What one slot did in a column."""

    tokens: Tokens = NONE
    unknown: int = 0
    """Requests whose reuse is unknown."""


@dataclass(slots=True)
class Column:
    """Consecutive requests."""

    first: RequestRow
    last: RequestRow
    count: int = 0
    restarts: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))

    @property
    def tokens(self) -> Tokens:
        """Those of all slots."""
        return added(cell.tokens for cell in self.cells.values())

    @property
    def unknown(self) -> int:
        """Requests whose reuse is unknown."""
        return sum(cell.unknown for cell in self.cells.values())

    def take(self, other: Column) -> None:
        """Add the column that follows."""
        self.last = other.last
        self.count += other.count
        self.restarts += other.restarts
        for lane, cell in other.cells.items():
            mine = self.cells.setdefault(lane, Cell())
            mine.tokens, mine.unknown = added((mine.tokens, cell.tokens)), mine.unknown + cell.unknown
        for name, n in other.events.items():
            self.events[name] += n


class Columns:
    """Takes requests in order."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.width = 1
        """Requests in a column; the last one may hold fewer."""
        self.all: list[Column] = []
        self.checkpoints_known = False
        """The log shows the checkpoints of at least one request."""

    def add(self, row: RequestRow) -> None:
        """Take the next request."""
        if not self.all or self.all[-1].count >= self.width:
            if len(self.all) == MOST:
                self._fold()
            self.all.append(Column(row, row))
        self.checkpoints_known |= row.checkpoints.tried is not None
        self.all[-1].take(self._column(row))

    def _column(self, row: RequestRow) -> Column:
        split, marks = tokens(row), row.checkpoints
        cell = Cell(NONE, 1) if split is None else Cell(split)
        events = {
            "created": marks.created or 0,
            "restored": marks.restored or 0,
            "erased": marks.erased or 0,
            "saved": int(row.saved_to_ram),
            "loaded": int(row.restored_from_ram or False),
        }
        lane = min(self.lanes.of(row), TOGETHER)
        return Column(row, row, 1, int(self.lanes.restarted(row)), {lane: cell}, events)

    def _fold(self) -> None:
        for left, right in zip(self.all[::2], self.all[1::2], strict=True):
            left.take(right)
        self.all = self.all[::2]
        self.width *= 2
