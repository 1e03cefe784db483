"""Rows of the tables of samples and batches: what a report holds of them, with what is known of their session.

Knows the columns. Knows nothing of where a report came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cachedoctor.frames.columns import Table
from cachedoctor.model import Session

_SESSION = ("origin", "version", "model", "memory")


class Measurements:
    """Counts sessions on from one report to the next, so that one table can hold several."""

    def __init__(self, table: Table) -> None:
        self._names = [column.name for column in table.columns]
        self._sessions = 0

    def lines(self, rows: Iterable[bytes], sessions: Iterable[Session]) -> Iterator[bytes]:
        """Yield samples or batches of one report as JSON objects with all columns in their order.

        Args:
            rows: as the JSON report has them.
            sessions: of the report, as they may be shown.
        """
        encode = msgspec.json.Encoder().encode
        facts = {s.index: {name: getattr(s, name) for name in _SESSION} for s in sessions}
        unknown: dict[str, Any] = dict.fromkeys(_SESSION)
        at = self._sessions
        for line in rows:
            row = msgspec.json.decode(line)
            row |= facts.get(row["session"], unknown)
            row["session"] += at
            yield encode({name: row.get(name) for name in self._names})
        self._sessions += max(facts, default=-1) + 1
