"""Sums over many servers: logs, JSON reports and tables of requests become one set of groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal

import cachedoctor
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.run import chains, drive_chain
from cachedoctor.doctor.compare.reports import distinct, is_report, read_whole, without_requests
from cachedoctor.doctor.naming import printable
from cachedoctor.doctor.scratch import scratch_folder
from cachedoctor.doctor.stored_fleet import StoredFleet, is_fleet
from cachedoctor.doctor.tables.measured_sums import MeasuredSums
from cachedoctor.frames import table_sums as stats
from cachedoctor.frames import table_writer
from cachedoctor.frames.columns import REQUESTS
from cachedoctor.frames.request_rows import Numbering
from cachedoctor.model import By, CacheDoctorError, Report, Stats, StatsInput
from cachedoctor.sources.base import Told, unheard

_PARQUET = b"PAR1"
_PARTS = 500
"""Files of a fleet that are open at a time."""
DEFAULT: tuple[By, ...] = ("build", "model")
"""Shown without being asked for, where there is more than one of them."""


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
        """Of inputs that could not be read to their end; what was read of them counts."""
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
                hint = "its table of files says why; what was read counts"
                what = f"{path}: {wrong:,} of {files:,} files could not be read to their end"
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
