"""What the charts share: axes, lanes of slots, token splits, and requests folded into columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cachedoctor.knowledge.texts import base_name
from cachedoctor.model import RequestRow, Session, counted
from cachedoctor.report.text.text_safe import cut

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def ticks(top: float, most: int = 4) -> list[float]:
    """Give round values from 0 to the first one at or above ``top``, about ``most`` steps."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(s * size for s in _STEPS if s * size >= rough * 0.999)
    return [i * step for i in range(math.ceil(top / step * 0.999) + 1)]


def short(value: float) -> str:
    """Write a number of tokens for an axis: 800, 12k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def box(x: float, y: float, width: float, height: float) -> str:
    """Give a rectangle as a piece of a path: one path holds all of a kind, so that a chart has few nodes."""
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"


Server = tuple[str, str | None]


class Lanes:
    """Numbers the slots in the order in which they come; a slot keeps its number when its server starts again."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._servers: dict[int, Server] = {s.index: (base_name(s.path), s.origin) for s in sessions}
        self._by_origin = len({origin for _, origin in self._servers.values()}) > 1
        self._by_path = len({path for path, _ in self._servers.values()}) > 1
        self._numbers: dict[tuple[Server, int], int] = {}
        self._life: dict[Server, int] = {}
        self._order: dict[Server, int] = {}
        self.names: list[str] = []
        self.places: list[tuple[int, int]] = []
        """Position of each slot among all: its server, its number there."""

    def of(self, row: RequestRow) -> int:
        """Number of the slot that a request ran in."""
        server = self._server(row)
        found = self._numbers.get((server, row.slot))
        if found is None:
            found = self._numbers[server, row.slot] = len(self.names)
            self.names.append(self._named(server, row.slot))
            self.places.append((self._order.setdefault(server, len(self._order)), row.slot))
        return found

    def restarted(self, row: RequestRow) -> bool:
        """Whether it is the first request of a server's next run; call it once for each request, in order."""
        server = self._server(row)
        before = self._life.get(server)
        self._life[server] = row.session if before is None else max(before, row.session)
        return before is not None and before < row.session

    def _server(self, row: RequestRow) -> Server:
        return self._servers.get(row.session, (row.path, None))

    def _named(self, server: Server, slot: int) -> str:
        path, origin = server
        parts = [cut(path.replace("\\", "/").rpartition("/")[2], 24)] if self._by_path else []
        if self._by_origin and origin is not None:
            parts.append(cut(origin, 24))
        return " ".join([*parts, f"slot {slot}"])


class PromptTokens(NamedTuple):
    """The prompt tokens of one request or of several."""

    reused: int
    """Taken from the cache."""
    recomputed: int
    """Computed tokens that were computed before but not reused."""
    new: int
    """Computed for the first time."""
    unsure: int
    """Computed; the log does not show whether they were new."""

    @property
    def prompt(self) -> int:
        """All of them."""
        return sum(self)


NONE = PromptTokens(0, 0, 0, 0)

KINDS: dict[str, str] = {
    "reused": "reused from the cache",
    "recomputed": "recomputed",
    "new": "new: computed for the first time",
    "unsure": "not reused; the log does not show whether these tokens were new",
}
"""Words for a legend."""


def added(several: Iterable[PromptTokens]) -> PromptTokens:
    """Add kind by kind."""
    return PromptTokens(*(sum(kind) for kind in zip(NONE, *several, strict=True)))


def tokens(row: RequestRow) -> PromptTokens | None:
    """Split the prompt of a request; None if the log does not show how much was reused."""
    found = counted(row, children=True)
    if found is None:
        return None
    processed = found.processed if found.processed is not None else found.prompt - found.cached
    if row.lost_tokens is not None:
        lost = min(row.lost_tokens, processed)
        return PromptTokens(found.cached, lost, processed - lost, 0)
    if row.outcome == "cold":
        return PromptTokens(found.cached, 0, processed, 0)
    return PromptTokens(found.cached, 0, 0, processed)


MOST_COLUMNS = 240
"""Columns; when they are full, each two become one."""
TOGETHER = 64
"""Number of slots shown separately; all further ones are grouped under this number."""

EVENTS = {
    "created": "checkpoints created",
    "restored": "checkpoints restored",
    "erased": "checkpoints erased",
    "saved": "saved to RAM",
    "loaded": "restored from RAM",
}
"""What can happen to a slot when a request takes it, in words."""


@dataclass(slots=True)
class SlotCell:
    """What one slot did in a column."""

    tokens: PromptTokens = NONE
    unknown: int = 0
    """Requests whose reuse is unknown."""


@dataclass(slots=True)
class RequestColumn:
    """Consecutive requests."""

    first: RequestRow
    last: RequestRow
    count: int = 0
    restarts: int = 0
    cells: dict[int, SlotCell] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))

    @property
    def tokens(self) -> PromptTokens:
        """Those of all slots."""
        return added(cell.tokens for cell in self.cells.values())

    @property
    def unknown(self) -> int:
        """Requests whose reuse is unknown."""
        return sum(cell.unknown for cell in self.cells.values())

    def take(self, other: RequestColumn) -> None:
        """Add the column that follows."""
        self.last = other.last
        self.count += other.count
        self.restarts += other.restarts
        for lane, cell in other.cells.items():
            mine = self.cells.setdefault(lane, SlotCell())
            mine.tokens, mine.unknown = added((mine.tokens, cell.tokens)), mine.unknown + cell.unknown
        for name, n in other.events.items():
            self.events[name] += n


class Columns:
    """Takes requests in order."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.width = 1
        """Requests in a column; the last one may hold fewer."""
        self.all: list[RequestColumn] = []
        self.checkpoints_known = False
        """The log shows the checkpoints of at least one request."""

    def add(self, row: RequestRow) -> None:
        """Take the next request."""
        if not self.all or self.all[-1].count >= self.width:
            if len(self.all) == MOST_COLUMNS:
                self._fold()
            self.all.append(RequestColumn(row, row))
        self.checkpoints_known |= row.checkpoints.tried is not None
        self.all[-1].take(self._column(row))

    def _column(self, row: RequestRow) -> RequestColumn:
        split, marks = tokens(row), row.checkpoints
        cell = SlotCell(NONE, 1) if split is None else SlotCell(split)
        events = {
            "created": marks.created or 0,
            "restored": marks.restored or 0,
            "erased": marks.erased or 0,
            "saved": int(row.saved_to_ram),
            "loaded": int(row.restored_from_ram or False),
        }
        lane = min(self.lanes.of(row), TOGETHER)
        return RequestColumn(row, row, 1, int(self.lanes.restarted(row)), {lane: cell}, events)

    def _fold(self) -> None:
        for left, right in zip(self.all[::2], self.all[1::2], strict=True):
            left.take(right)
        self.all = self.all[::2]
        self.width *= 2
