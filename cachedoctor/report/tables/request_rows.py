"""Rows of the tables of requests, samples and batches, with what is known of their sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cachedoctor.model import RequestRow, Session
from cachedoctor.report.tables.columns import REQUESTS, ColumnTable

_REQUEST_ROWS_SESSION = (
    "origin",
    "engine",
    "build",
    "build_min",
    "build_max",
    "model",
    "memory",
    "n_slots",
    "n_ctx_slot",
)
_COUNTS = ("tried", "restored", "created", "erased")
_NAMES = [column.name for column in REQUESTS.columns]


class Numbering(msgspec.Struct):
    """Counts requests and sessions on from one report to the next, so that one table can hold several."""

    requests: int = 0
    sessions: int = 0

    def lines(self, rows: Iterable[RequestRow], sessions: Iterable[Session]) -> Iterator[bytes]:
        """Yield the requests of one report, with what its ``sessions`` say, as JSON objects.

        Their keys are in the order of the columns. A session is taken as it is: whoever writes the table
        gives it as it may be shown.
        """
        encode = msgspec.json.Encoder().encode
        facts = {s.index: {name: getattr(s, name) for name in _REQUEST_ROWS_SESSION} for s in sessions}
        unknown: dict[str, Any] = dict.fromkeys(_REQUEST_ROWS_SESSION)
        first, at, highest = self.requests, self.sessions, max(facts, default=-1)
        for row in rows:
            flat = _flat(row) | facts.get(row.session, unknown)
            flat["index"], flat["session"] = first + row.index, at + row.session
            highest = max(highest, row.session)
            self.requests += 1
            yield encode({name: flat[name] for name in _NAMES})
        self.sessions += highest + 1


def _flat(row: RequestRow) -> dict[str, Any]:
    flat = msgspec.structs.asdict(row)
    checkpoints = flat.pop("checkpoints")
    for name in _COUNTS:
        flat[f"checkpoints_{name}"] = getattr(checkpoints, name)
    flat["checkpoints_held"] = [{"pos_min": low, "pos_max": high} for low, high in checkpoints.held]
    flat["checkpoint_pos_min"], flat["checkpoint_pos_max"] = checkpoints.restored_at or (None, None)
    return flat


_SAMPLE_ROWS_SESSION = ("origin", "version", "model", "memory")


class Measurements:
    """Counts sessions on from one report to the next, so that one table can hold several."""

    def __init__(self, table: ColumnTable) -> None:
        self._names = [column.name for column in table.columns]
        self._sessions = 0

    def lines(self, rows: Iterable[bytes], sessions: Iterable[Session]) -> Iterator[bytes]:
        """Yield samples or batches of one report as JSON objects with all columns in their order.

        Args:
            rows: as the JSON report has them.
            sessions: of the report, as they may be shown.
        """
        encode = msgspec.json.Encoder().encode
        facts = {s.index: {name: getattr(s, name) for name in _SAMPLE_ROWS_SESSION} for s in sessions}
        unknown: dict[str, Any] = dict.fromkeys(_SAMPLE_ROWS_SESSION)
        at = self._sessions
        for line in rows:
            row = msgspec.json.decode(line)
            row |= facts.get(row["session"], unknown)
            row["session"] += at
            yield encode({name: row.get(name) for name in self._names})
        self._sessions += max(facts, default=-1) + 1
