"""From inputs to rows of tables; an input that is no server log is refused by its first lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from cachedoctor.doctor.analysis.run import chains, source_of
from cachedoctor.doctor.tables.events import Listing
from cachedoctor.inputs.sources.base import SourceError, Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.engines import PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Report
from cachedoctor.redaction import sanitize
from cachedoctor.report.tables.columns import SAMPLES, Ending, Table
from cachedoctor.report.tables.request_rows import Measurements, Numbering

_HEAD = 1 << 15
"""Bytes that are looked at."""
_SHARE = 0.2
"""Of the lines that are messages of a server; in what a person asks about a log they are fewer, or come later."""
_PROMPT = late(rb"\s*+(?:<|\[\s*+\{|\{[^\n]{0,4096}?\"(?:messages|prompt|input)\"\s*+:)")
"""How a prompt begins in which somebody may have pasted a log: with a template's token, or as a body."""
_MAYBE = late(rb"\b(?:slot|srv|llama|" + PATTERN.encode() + rb"|INFO|WARN)\b")
"""What no log of a server lacks; catalogues are compiled only where it stands."""


def is_log(path: str) -> bool:
    """Whether the file at ``path`` begins with lines of a server; False of standard input, pipes and folders."""
    if not os.path.isfile(path):
        return False
    head = _head(path)
    lines = [line for line in head.split(b"\n") if line.strip()]
    if not lines or _PROMPT.match(head) is not None or _MAYBE.search(head) is None:
        return False
    from cachedoctor.doctor.tables.events import Listing

    listing = Listing("")
    known = len([*listing.feed(head), *listing.finish()])
    return known >= _SHARE * len(lines)


def logs_in(folder: str) -> tuple[list[str], list[str]]:
    """Return the logs of servers that lie directly in ``folder``, by name, and the other files that are called logs.

    A rotation may begin anywhere: it is a log where the one is whose rotation it is. None of a folder that cannot be
    read, which whoever reads it will say.
    """
    from cachedoctor.knowledge.texts import base_name

    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name[0] != ".")
    except OSError:
        return [], []
    known = {base_name(name) for name in names if is_log(os.path.join(folder, name))}
    logs = [os.path.join(folder, name) for name in names if base_name(name) in known]
    return logs, [name for name in names if base_name(name) not in known and base_name(name).endswith(".log")]


def _head(path: str) -> bytes:
    """Return the first whole lines, unpacked; nothing of what cannot be read, which whoever reads it will say."""
    from cachedoctor.inputs.sources.file import FileSource
    from cachedoctor.model import CacheDoctorError

    try:
        head = next(FileSource(path, MAX_BYTES).chunks(), b"")
    except CacheDoctorError:
        return b""
    return head if len(head) <= _HEAD else head[:_HEAD].rpartition(b"\n")[0]


def request_rows(reports: list[Report]) -> Iterator[bytes]:
    """Yield the requests of several reports as rows of one table."""
    numbering = Numbering()
    for report in reports:
        yield from numbering.lines(report.requests, map(sanitize.mask, report.sessions))


def measured_rows(table: Table, reports: list[Report]) -> Iterator[bytes]:
    """Yield the samples or batches of several reports as rows of one table."""
    numbering = Measurements(table)
    for report in reports:
        rows = report.samples if table is SAMPLES else report.batches
        sessions = map(sanitize.mask, report.sessions)
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
    from cachedoctor.report.tables import table_writer

    table_writer.write(table, rows, out, ending)
