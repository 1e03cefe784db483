"""The table of requests: all of them as data for the script, some as rows for browsers without scripts."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from cachedoctor.model import RequestRow
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.html.request_columns import Lanes, tokens
from cachedoctor.report.text.text_safe import cut, visible
from cachedoctor.report.words.numbers import duration, number

MOST = 20_000
"""Maximum requests in the file: if there are more, those that lost most."""
PLAIN = 500
"""Rows for a browser without scripts."""

HEADS = (
    ("index", "#", "Number of the request, as in the JSON report"),
    ("when", "Started", "Time of day or time since the start of the server, as the log shows it"),
    ("slot", "Slot", ""),
    ("task", "Task", "Number given by the server"),
    ("thread", "Conversation", "Conversation number; in brackets the turn, from 0"),
    ("prompt", "Prompt tokens", ""),
    ("reused", "Reused tokens", "Taken from the cache"),
    ("recomputed", "Recomputed tokens", "Computed tokens that had been computed before"),
    ("new", "New tokens", "Computed for the first time"),
    ("ms", "Prompt time", ""),
    ("outcome", "Outcome", ""),
    ("codes", "Findings", ""),
    ("lines", "Lines", "First and last line in the log"),
)
"""Key, head, meaning. The script has the same columns."""


class ScriptRow(msgspec.Struct, array_like=True, gc=False):
    """A request as the script reads it; unknown is None."""

    index: int
    when: str | None
    slot: int
    task: int
    thread: int | None
    turn: int | None
    prompt: int | None
    reused: int | None
    recomputed: int | None
    new: int | None
    unsure: int
    """Computed tokens of which the log does not show whether they are new."""
    ms: float | None
    outcome: str
    codes: list[str]
    first_line: int
    last_line: int
    path: int
    asked: str | None


class RequestTable:
    """Takes requests in order; keeps those that lost most, when they are too many."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.total = 0
        self.timed = False
        self._paths: dict[str, int] = {}
        self._kept: list[tuple[int, int, int, ScriptRow]] = []
        """Lost tokens, position in the log, position in the report (a stored report may hold a request twice), and the
        row."""

    def add(self, row: RequestRow) -> None:
        """Take a request."""
        self.total += 1
        lost = row.lost_tokens or 0
        full = len(self._kept) >= MOST
        if full and (lost, -row.index) < self._kept[0][:2]:
            return
        entry = (lost, -row.index, self.total, self._row(row))
        self.timed |= entry[3].when is not None
        if full:
            heapq.heapreplace(self._kept, entry)
        else:
            heapq.heappush(self._kept, entry)

    def _row(self, row: RequestRow) -> ScriptRow:
        split = tokens(row)
        known = split if split is not None and not split.unsure else None
        when = row.time or (None if row.uptime_ms is None else duration(row.uptime_ms))
        asked = hidden(" ".join(filter(None, (row.client, row.endpoint))))
        return ScriptRow(
            row.index, when and cut(when, 40), self.lanes.of(row), row.task, row.thread, row.turn, row.prompt_tokens,
            row.cached_tokens, known and known.recomputed, known and known.new, split.unsure if split else 0,
            None if row.prompt_ms is None else round(row.prompt_ms, 1), row.outcome,
            [visible(code) for code in row.codes],
            row.first_line, row.last_line, self._paths.setdefault(row.path, len(self._paths)),
            cut(asked, 120) if asked else None,
        )  # fmt: skip

    @property
    def kept(self) -> int:
        """Requests in the file."""
        return len(self._kept)

    def plain(self) -> list[list[str]]:
        """Return the cells of the rows that need no script, in the order of the log."""
        worst = heapq.nlargest(PLAIN, self._kept, key=lambda entry: entry[:2])
        return [_cells(row, self.lanes.names) for *_, row in sorted(worst, key=lambda entry: -entry[1])]

    def data(self, names: dict[str, str]) -> str:
        """Return all kept rows as JSON that can be in a script element. ``names``: of rules, by their codes."""
        rows = [row for *_, row in sorted(self._kept, key=lambda entry: -entry[1])]
        found = {code for row in rows for code in row.codes}
        return embedded(
            {
                "columns": ScriptRow.__struct_fields__,
                "slots": [visible(name) for name in self.lanes.names],
                "paths": [visible(path) for path in self._paths],
                "names": {code: name for code, name in sorted(names.items()) if code in found},
                "rows": rows,
            }
        )


def embedded(value: Any) -> str:
    """Write JSON that no HTML parser takes for markup: it has no <, > or & in it."""
    text = msgspec.json.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cells(row: ScriptRow, slots: list[str]) -> list[str]:
    return [
        number(row.index), row.when or "unknown", slots[row.slot].removeprefix("slot "), number(row.task), _thread(row),
        _known(row.prompt), _known(row.reused), _known(row.recomputed), _known(row.new),
        "unknown" if row.ms is None else duration(row.ms), row.outcome, " ".join(row.codes),
        f"{row.first_line}-{row.last_line}",
    ]  # fmt: skip


def _thread(row: ScriptRow) -> str:
    if row.thread is None:
        return "unknown"
    return number(row.thread) if row.turn is None else f"{number(row.thread)} ({number(row.turn)})"


def _known(value: int | None) -> str:
    return "unknown" if value is None else number(value)
