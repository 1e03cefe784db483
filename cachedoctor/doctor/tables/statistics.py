"""Sums over many servers: logs, JSON reports and tables of requests become one set of groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import cachedoctor
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.run import chains, drive_chain
from cachedoctor.doctor.compare import tally
from cachedoctor.doctor.compare.metrics import Measured, by_session
from cachedoctor.doctor.compare.reports import distinct, is_report, read_whole, without_requests
from cachedoctor.doctor.scratch import printable, scratch_folder
from cachedoctor.doctor.stored_fleet import StoredFleet, is_fleet
from cachedoctor.inputs.sources.base import Told, unheard
from cachedoctor.model import By, CacheDoctorError, MeasuredRow, Report, Session, Stats, StatsInput
from cachedoctor.report.tables import table_sums as stats
from cachedoctor.report.tables import table_writer
from cachedoctor.report.tables.columns import REQUESTS
from cachedoctor.report.tables.request_rows import Numbering
from cachedoctor.report.words import traffic_words

_GROUP: dict[By | None, Callable[[Session], str | None]] = {
    None: lambda session: None,
    "model": lambda session: session.model,
    "build": lambda session: f"{traffic_words.program(session)} {traffic_words.version(session)}",
    "memory": lambda session: session.memory,
    "path": lambda session: session.path,
    "origin": lambda session: session.origin,
}
"""What these servers can be grouped by; the rest is known of requests alone."""


class MeasuredSums:
    """Gathers servers of any number of reports."""

    def __init__(self) -> None:
        self._found: list[tuple[Session, Measured]] = []

    def add(self, report: Report) -> bool:
        """Take what its servers measured; gives whether that was anything."""
        found = by_session(report)
        self._found += [(session, found[session.index]) for session in report.sessions if session.index in found]
        return bool(found)

    def rows(self, by: Sequence[By | None]) -> list[MeasuredRow]:
        """Sum up over all and by each of these, the most prompt tokens first."""
        return [row for kind in by if kind in _GROUP for row in self._rows(kind)]

    def _rows(self, by: By | None) -> list[MeasuredRow]:
        groups: dict[tuple[str | None, str], list[Measured]] = {}
        for session, measured in self._found:
            groups.setdefault((_GROUP[by](session), measured.piece), []).append(measured)
        rows = [_row(by, group, found) for (group, _), found in groups.items()]
        return sorted(rows, key=lambda row: (-(row.prompt_tokens or 0), row.group or ""))


def _row(by: By | None, group: str | None, found: list[Measured]) -> MeasuredRow:
    terms = [term for measured in found for term in measured.terms]
    reused, prompt = sum(term.upper for term in terms), sum(term.lower for term in terms)
    interval = tally.interval(terms)
    low, high = interval or (None, None)
    row = MeasuredRow(
        by, group, found[0].piece, len(found), sum(m.pieces for m in found), None, None, reused / prompt, low, high
    )
    if row.piece != "rate":
        row.prompt_tokens, row.cached_tokens = round(prompt), round(reused)
    return row


_PARQUET = b"PAR1"
_PARTS = 500
"""Files of a fleet that are open at a time."""
DEFAULT: tuple[By, ...] = ("build", "model")
"""Shown by default, if there is more than one of them."""


class Gathering:
    """Reads the inputs; every log with its rotations, and every report, is a server of its own."""

    def __init__(self, paths: list[str], build: int | None, max_unpacked: int, told: Told = unheard) -> None:
        """Sort the inputs; one that is given twice counts once.

        Args:
            paths: logs, JSON reports, tables, folders of fleets.
            build: of the logs that do not say it.
            max_unpacked: bytes that each log may unpack to.
            told: hears of bytes as they are read.
        """
        self._told = told
        paths = distinct(paths)
        self._fleets = [path for path in paths if path != "-" and is_fleet(path)]
        paths = [path for path in paths if path not in self._fleets]
        self._tables = [path for path in paths if _is_table(path)]
        self._reports = [path for path in paths if path not in self._tables and is_report(path)]
        self._chains = chains([path for path in paths if path not in {*self._tables, *self._reports}])
        self._build = build
        self._max_unpacked = max_unpacked
        self.errors: list[CacheDoctorError] = []
        """Errors of inputs that could not be read to the end; what was read of them counts."""
        self.recognised = False
        """There is something to sum up."""
        self.measured: list[str] = []
        """Inputs whose servers have no requests, and measured nothing of what they reused."""
        self._sums = MeasuredSums()
        self._inputs: list[StatsInput] = []

    def stats(self, by: Sequence[By]) -> Stats:
        """Read everything and sum it up: over all, and by each of ``by``, else by what differs."""
        with scratch_folder() as folder:
            gathered = os.path.join(folder, "requests.parquet")
            with open(gathered, "wb") as out:
                table_writer.write(REQUESTS, self._rows(), out, "parquet")
            sums = stats.tables(
                [gathered, *self._checked(), *self._checked_fleets()], [None, *dict.fromkeys(by or DEFAULT)]
            )
        shown = [table for table in sums if table.by is None or by or len(table.rows) > 1]
        kinds: list[By | None] = [None, *dict.fromkeys(by or DEFAULT)]
        rows = self._sums.rows(kinds)
        if not by:
            rows = [row for row in rows if row.by is None or sum(other.by == row.by for other in rows) > 1]
        return Stats(cachedoctor.__version__, self._inputs, shown, rows)

    def _rows(self) -> Iterator[bytes]:
        numbering = Numbering()
        for report in self._read():
            told = self._sums.add(report)
            if without_requests(report):
                self.recognised = self.recognised or told
                if not told:
                    self.measured += [i.path for i in report.inputs if i.recognised]
                continue
            self.recognised = self.recognised or any(i.recognised for i in report.inputs)
            yield from numbering.lines(report.requests, report.sessions)

    def _read(self) -> Iterator[Report]:
        for path in self._reports:
            try:
                report = read_whole(path, self._told)
            except CacheDoctorError as error:
                self._failed(path, "report", error)
                continue
            self._inputs.append(StatsInput(printable(path), "report"))
            yield report
        for chain in self._chains:
            analyzer = Analyzer(self._build)
            self.errors += drive_chain(analyzer, chain, self._max_unpacked, self._told)
            report = analyzer.finish()
            self._inputs += [StatsInput(i.path, "log", i.error) for i in report.inputs]
            yield report

    def _checked(self) -> Iterator[str]:
        for path in self._tables:
            try:
                stats.check(path)
            except CacheDoctorError as error:
                self._failed(path, "table", error)
                continue
            self._inputs.append(StatsInput(printable(path), "table"))
            self.recognised = True
            yield path

    def _checked_fleets(self) -> Iterator[tuple[str, ...]]:
        for path in self._fleets:
            try:
                found = StoredFleet(path)
                some = found.requests
                parts = [tuple(some[at : at + _PARTS]) for at in range(0, len(some), _PARTS)]
                for part in parts:
                    stats.check_parts(part, path)
                told = [self._sums.add(report) for report in found.measured()]
                wrong, files = found.amiss()
            except CacheDoctorError as error:
                self._failed(path, "table", error)
                continue
            if wrong:
                hint = "the table `files` shows the reason; the sums cover only the part that was read"
                what = f"{path}: {wrong:,} of {files:,} files could not be read to the end"
                self._failed(path, "table", CacheDoctorError(what, hint))
            else:
                self._inputs.append(StatsInput(printable(path), "table"))
            self.recognised = self.recognised or bool(some) or any(told)
            yield from parts

    def _failed(self, path: str, kind: Literal["report", "table"], error: CacheDoctorError) -> None:
        self.errors.append(error)
        self._inputs.append(StatsInput(printable(path), kind, printable(error.message)))


def _is_table(path: str) -> bool:
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False  # whoever reads it says what is wrong
