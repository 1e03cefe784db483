"""The result of a fleet, read back: what ``fleet`` and ``compare`` know as tables and reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any

import msgspec

from cachedoctor.model import (
    CacheDoctorError,
    Finding,
    InputInfo,
    NotEvaluated,
    Report,
    RequestRow,
    RuleInfo,
    Session,
    Totals,
    read_rows,
)
from cachedoctor.model.row import CheckpointRow
from cachedoctor.report.tables.columns import BATCHES, FILES, FINDINGS, REQUESTS, SAMPLES, SESSIONS, UNSEEN, ColumnTable
from cachedoctor.report.tables.fleet_sums import rows_of
from cachedoctor.report.words.traffic_words import LLAMA

MARK = "fleet.json"
"""File that distinguishes such a folder from others."""
SCHEMA = "cachedoctor.fleet/1"


class Head(msgspec.Struct):
    """What ``fleet.json`` says."""

    schema: str
    version: str
    """Version of the cachedoctor that wrote to it last."""
    rules: list[RuleInfo]
    """Rules of this version."""


def is_fleet(path: str) -> bool:
    """Whether a folder holds the result of a fleet."""
    return os.path.isfile(os.path.join(path, MARK))


def head_of(folder: str) -> Head:
    """Read what is in ``fleet.json``.

    Raises ``CacheDoctorError`` when this version cannot read the folder.
    """
    path = os.path.join(folder, MARK)
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=Head)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CacheDoctorError(f"{path}: cannot be read ({error})", "give a folder written by fleet -o") from error
    if found.schema != SCHEMA:
        what = f"{folder}: is a result with another schema, {found.schema[:40]}; this version reads {SCHEMA}"
        raise CacheDoctorError(what, "use the cachedoctor version that wrote the folder, or write the folder again")
    return found


def parts(folder: str, table: str) -> list[str]:
    """Return the files of a table, by name."""
    try:
        names = sorted(os.listdir(os.path.join(folder, table)))
    except OSError:
        return []
    return [os.path.join(folder, table, name) for name in names if name.endswith(".parquet")]


READ, CUT, FAILED, NO_LOG = "read", "cut", "failed", "no log"
KEPT = (READ, NO_LOG)
"""A file with one of these states is not read again while it is unchanged."""
_COUNTS = ("tried", "restored", "created", "erased")
_FIELDS = [name for name in RequestRow.__struct_fields__ if name not in ("identities", "bounds", "at_least")]


class StoredFleet:
    """The folder; every log of it is read on its own."""

    def __init__(self, folder: str) -> None:
        """Raises ``CacheDoctorError`` when it is of another version."""
        self._folder = folder
        self._head = head_of(folder)

    @property
    def requests(self) -> list[str]:
        """Tables of requests, one of each log that has any."""
        return parts(self._folder, REQUESTS.name)

    def amiss(self) -> tuple[int, int]:
        """Return how many files could not be read, or not to their end, and how many there are."""
        found = Counter(row["status"] for row in self._rows(FILES))
        return found[FAILED] + found[CUT], found.total()

    def measured(self) -> Iterator[Report]:
        """Yield a report of each log whose servers measured what has no requests."""
        logs = {row["log"] for row in self._rows(SESSIONS) if row["engine"] != LLAMA}
        names = {row["part"] for row in self._rows(FILES) if row["log"] in logs}
        for name in sorted(names):
            yield self._report([f"{name}.parquet"])

    def report(self) -> Report:
        """Return one report of all logs, whose requests are read as often as somebody goes through them."""
        found = self._report([os.path.basename(path) for path in parts(self._folder, SESSIONS.name)])
        wrong, files = self.amiss()
        if wrong:
            info = InputInfo(self._folder, error=f"{wrong:,} of {files:,} files could not be read to the end")
            found.inputs.append(info)
        return found

    def _report(self, names: list[str]) -> Report:
        sessions: list[Session] = []
        starts: dict[str, int] = {}
        for name in names:
            starts[name] = sessions[-1].index + 1 if sessions else 0
            sessions += self._sessions(name, starts[name])
        rules = self._head.rules
        return Report(
            self._head.version, self._inputs(), sessions, Totals(), _Requests(self._folder, starts),
            self._findings(names), self._unseen(names, rules), rules,
            samples=_Measured(self._folder, SAMPLES, starts), batches=_Measured(self._folder, BATCHES, starts),
        )  # fmt: skip

    def _sessions(self, name: str, first: int) -> Iterator[Session]:
        """Yield the sessions of a log, numbered from ``first`` on."""
        for row in self._rows(SESSIONS, name):
            session = msgspec.json.decode(row["json"], type=Session)
            session.learn(index=session.index + first)
            yield session

    def _inputs(self) -> list[InputInfo]:
        """One for all files: nobody who compares wants them one by one."""
        sums: Counter[str] = Counter()
        for row in self._rows(FILES):
            sums.update({key: row[key] or 0 for key in ("bytes", "lines", "recognised")})
        return [InputInfo(self._folder, None, sums["bytes"], sums["lines"], sums["recognised"])]

    def _findings(self, names: list[str]) -> list[Finding]:
        return [msgspec.json.decode(row["json"], type=Finding) for name in names for row in self._rows(FINDINGS, name)]

    def _unseen(self, names: list[str], rules: list[RuleInfo]) -> list[NotEvaluated]:
        """Rules that no log could have shown."""
        found: dict[str, NotEvaluated] = {}
        logs: Counter[str] = Counter()
        for name in names:
            for row in self._rows(UNSEEN, name):
                found[row["code"]] = NotEvaluated(row["code"], row["name"], row["reason"], row["enable"])
                logs[row["code"]] += 1
        return [found[rule.code] for rule in rules if logs[rule.code] == len(names) > 0]

    def _rows(self, table: ColumnTable, name: str | None = None) -> Iterator[dict[str, Any]]:
        paths = parts(self._folder, table.name) if name is None else [os.path.join(self._folder, table.name, name)]
        yield from _rows(paths, table)


def _rows(paths: list[str], table: ColumnTable) -> Iterator[dict[str, Any]]:
    """Yield the rows of those of the files that there are."""
    return rows_of([path for path in paths if os.path.exists(path)], table)


class _Requests:
    """The requests of all logs, as rows of a report; sessions and requests are numbered through."""

    def __init__(self, folder: str, starts: dict[str, int]) -> None:
        self._folder, self._starts = folder, starts

    def check(self) -> None:
        """What cannot be read raises when it is read."""

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield every request."""
        return read_rows(self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object per request, without newline."""
        number = 0
        for name, start in self._starts.items():
            for row in _rows([os.path.join(self._folder, REQUESTS.name, name)], REQUESTS):
                yield msgspec.json.encode(_nested(row) | {"index": number, "session": start + row["session"]})
                number += 1

    def copy_to(self, out: IO[bytes]) -> None:
        """Write them all, one a line, with a comma between them as in a JSON array."""
        for at, line in enumerate(self.lines()):
            out.write(b",\n" * (at > 0) + line)


class _Measured:
    """Samples or batches of all logs."""

    def __init__(self, folder: str, table: ColumnTable, starts: dict[str, int]) -> None:
        self._folder, self._table, self._starts = folder, table, starts

    def check(self) -> None:
        """What cannot be read raises when it is read."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object each, without newline."""
        for name, start in self._starts.items():
            for row in _rows([os.path.join(self._folder, self._table.name, name)], self._table):
                yield msgspec.json.encode(row | {"session": start + row["session"]})


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """Return a request as the JSON report has it: the columns of its checkpoints are one object there."""
    held = [(span["pos_min"], span["pos_max"]) for span in row["checkpoints_held"] or []]
    low, high = row["checkpoint_pos_min"], row["checkpoint_pos_max"]
    restored = None if low is None or high is None else (low, high)
    counts = {name: row[f"checkpoints_{name}"] for name in _COUNTS}
    checkpoints = CheckpointRow(**counts, held=held, restored_at=restored)
    return {name: row.get(name) for name in _FIELDS} | {"checkpoints": checkpoints}
