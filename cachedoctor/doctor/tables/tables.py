"""From inputs to rows of tables: reports to requests, logs to events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from cachedoctor.doctor.analysis.run import chains, source_of
from cachedoctor.doctor.tables.events import Listing
from cachedoctor.frames.columns import SAMPLES, Ending, Table
from cachedoctor.frames.request_rows import Numbering
from cachedoctor.frames.sample_rows import Measurements
from cachedoctor.model import Report
from cachedoctor.report import sanitize
from cachedoctor.sources.base import SourceError, Told, unheard


def request_rows(reports: list[Report]) -> Iterator[bytes]:
    """Yield the requests of several reports as rows of one table."""
    numbering = Numbering()
    for report in reports:
        yield from numbering.lines(report.requests, map(sanitize.session, report.sessions))


def measured_rows(table: Table, reports: list[Report]) -> Iterator[bytes]:
    """Yield the samples or batches of several reports as rows of one table."""
    numbering = Measurements(table)
    for report in reports:
        rows = report.samples if table is SAMPLES else report.batches
        sessions = map(sanitize.session, report.sessions)
        yield from numbering.lines(rows.lines() if rows is not None else (), sessions)


class Events:
    """Rows of the lines of logs; what went wrong is known when all were taken."""

    def __init__(self, paths: list[str], max_unpacked: int, told: Told = unheard) -> None:
        """``max_unpacked``: bytes that each input may unpack to; ``told``: hears of bytes as they are read."""
        self._told = told
        self._paths = [path for chain in chains(paths) for path in chain]
        self._max_unpacked = max_unpacked
        self.errors: list[SourceError] = []
        """Of inputs that could not be read to their end."""

    def lines(self) -> Iterator[bytes]:
        """Yield the rows, log after log, the rotations of one log in the order of time."""
        for path in self._paths:
            yield from self._of(path)

    def _of(self, path: str) -> Iterator[bytes]:
        listing = Listing(path)
        try:
            for chunk in source_of(path, self._max_unpacked, self._told).chunks():
                yield from listing.feed(chunk)
        except SourceError as error:
            self.errors.append(error)
        yield from listing.finish()


def write(table: Table, rows: Iterator[bytes], out: IO[bytes], ending: Ending) -> None:
    """Write a table.

    Raises:
        CacheDoctorError: it is parquet, and polars is not installed.
    """
    from cachedoctor.frames import table_writer

    table_writer.write(table, rows, out, ending)
