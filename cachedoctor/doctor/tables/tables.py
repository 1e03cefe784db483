"""From inputs to rows of tables: reports to requests, logs to events."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, Any

import msgspec

from cachedoctor.doctor.analysis.intake import Intake
from cachedoctor.doctor.analysis.run import chains, source_of
from cachedoctor.doctor.redact.scan import EngineLines, EngineReader
from cachedoctor.doctor.scratch import printable
from cachedoctor.engines.catalogue.base import as_pairs, value_of
from cachedoctor.engines.catalogue.spans import Hole, RecognisedLine, Spans
from cachedoctor.engines.llamacpp.tracker import single_lines
from cachedoctor.inputs.envelope.shapes import wall_time
from cachedoctor.inputs.sources.base import SourceError, Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.engines import PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Report, Segment
from cachedoctor.model.bounds import NUMBERS
from cachedoctor.redaction import sanitize
from cachedoctor.report.tables.columns import SAMPLES, ColumnTable, Ending
from cachedoctor.report.tables.request_rows import Measurements, Numbering

_PROMPTS = frozenset({"text", "json", "ids", "rest"})
"""Kinds of holes that may contain prompts."""
_LONGEST = 256
"""Code points that are kept of a path, an address and other texts."""
_SHORT = 64
"""Code points of texts that are remembered with what is shown of them: addresses, names, states."""
_BEFORE = late(
    rb"(?:(\d{1,9})\.(\d\d)\.(\d\d\d)\.(\d\d\d) ++)?(?:([IWEDT]) ++)?"
    rb"(?:[^|\n]*\bid ++(\d{1,3}) *+\| *+task ++(-1|\d{1,18}))?"
)
"""What comes before a message: clock, level, slot and task."""


_LEVELS = {b"DEBUG": "D", b"INFO": "I", b"WARNING": "W", b"ERROR": "E", b"CRITICAL": "E"}
_NUMBER = late(r"-?\d{1,15}(?:\.\d{1,15})?")
_PAIRS = 64
"""Number of values to keep of a line that names them itself; no engine prints so many."""


class Listing:
    """Feeds on the bytes of one input."""

    def __init__(self, path: str) -> None:
        self._path = printable(path)
        self._intake = Intake(self._path)
        self._spans = Spans(single_lines())
        self._logged = EngineLines()
        self._encode = msgspec.json.Encoder().encode

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the rows of the lines that the next bytes complete, as JSON objects."""
        return self._rows(self._intake.feed(chunk))

    def finish(self) -> Iterator[bytes]:
        """Yield the rows of what was still held back."""
        for segments in self._intake.finish():
            yield from self._rows(segments)

    def _rows(self, segments: list[Segment]) -> Iterator[bytes]:
        found = [row for segment in segments for row in self._segment(segment)]
        if len(segments) > 1:  # several servers in one file
            found.sort(key=lambda row: row["line"])
        yield from map(self._encode, found)

    def _segment(self, segment: Segment) -> Iterator[dict[str, Any]]:
        data, index, counted = b"\n" + segment.data, 0, 1
        for found, reader in self._found(data, segment.origin):
            index += data.count(b"\n", counted, found.start)
            counted = found.start
            number = segment.number(index)
            stored = segment.stored.get(number)
            before = {"path": self._path, "line": number, "origin": segment.origin and sanitize.name(segment.origin)}
            before["time"] = None if stored is None else wall_time(stored)
            row = _row(data, found) if reader is None else _logged_row(reader, data, found)
            own = row.pop("time")
            before["time"] = before["time"] or own
            yield before | row

    def _found(self, data: bytes, origin: str | None) -> list[tuple[RecognisedLine, EngineReader | None]]:
        """Messages in their order, and the engine of those that are not llama-server's."""
        lines: dict[int, tuple[RecognisedLine, EngineReader | None]] = {
            line.start: (line, reader) for line, reader in self._others(data, origin) if line.row is not None
        }
        lines |= {line.start: (line, None) for line in self._spans.read(data) if line.row is not None}
        return [lines[start] for start in sorted(lines)]

    def _others(self, data: bytes, origin: str | None) -> Iterator[tuple[RecognisedLine, EngineReader]]:
        for reader, line in self._logged.read(data, origin).values():
            yield line, reader


def _logged_row(reader: EngineReader, data: bytes, found: RecognisedLine) -> dict[str, Any]:
    parts, _, _ = reader.words.prefix(data[found.start : found.message])
    level = parts.get("level") or parts.get("lmlevel")
    fields: dict[str, int | float | str | None] = {}
    for hole in found.holes:
        raw = data[hole.start : hole.end]
        if hole.kind == "pairs":
            fields |= {
                _remembered(name[:_SHORT]): _amount(value) for name, value in list(as_pairs(raw).items())[:_PAIRS]
            }
        else:
            fields[hole.name] = _value(hole, raw)
    return {
        "time": reader.words.time(parts),
        "uptime_ms": None,
        "level": None if level is None else _LEVELS.get(level),
        "slot": None,
        "task": None,
        "message": found.row.id if found.row else None,
        "fields": msgspec.json.encode(fields).decode(),
        "engine": reader.words.engine,
        "process": sanitize.value(reader.words.process(parts)) or None,
    }


def _amount(value: str) -> int | float | str:
    if _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return sanitize.value(value, _SHORT)


def _row(data: bytes, found: RecognisedLine) -> dict[str, Any]:
    before = _BEFORE.match(data, found.start, found.message)
    *clock, level, slot, task = before.groups() if before else (None,) * 7
    uptime = None
    if clock[0] is not None:
        minutes, seconds, millis, micros = (int(part or 0) for part in clock)
        uptime = minutes * 60_000 + seconds * 1000 + millis + micros / 1000
    fields = {hole.name: _value(hole, data[hole.start : hole.end]) for hole in found.holes}
    return {
        "time": None,
        "uptime_ms": uptime,
        "level": level and level.decode(),
        "slot": None if slot is None else int(slot),
        "task": None if task is None or task == b"-1" else int(task),
        "message": found.row.id if found.row else None,
        "fields": msgspec.json.encode(fields).decode(),
        "engine": "llama.cpp",
        "process": None,
    }


def _value(hole: Hole, raw: bytes) -> int | float | str | None:
    if hole.kind in NUMBERS:
        found: int | float | str | None = value_of(hole.kind, raw)
        return found
    text = raw.decode("utf-8", "replace")
    if hole.kind in _PROMPTS:
        return sanitize.value(text)
    return _remembered(text) if len(text) <= _SHORT else sanitize.value(text, _LONGEST)


@lru_cache(maxsize=4096)
def _remembered(text: str) -> str:
    return sanitize.value(text)


_HEAD = 1 << 15
"""Bytes that are checked."""
_SHARE = 0.2
"""Share of the lines that are messages of a server; in what a person asks about a log they are fewer, or come later."""
_MANY = 20
"""Messages of a server in a file that is called a log, whatever else is in it."""
_PROMPT = late(rb"\s*+(?:<|\[\s*+\{|\{[^\n]{0,4096}?\"(?:messages|prompt|input)\"\s*+:)")
"""How a prompt begins into which a user may have pasted a log: with a template's token, or as a body."""
_MAYBE = late(rb"\b(?:slot|srv|llama|" + PATTERN.encode() + rb"|INFO|WARN)\b")
"""Every log of a server contains one of these; catalogues are compiled only if it does."""


def is_log(path: str) -> bool:
    """Whether the file at ``path`` begins with lines of a server; False of standard input, pipes and folders."""
    if not os.path.isfile(path):
        return False
    head = _head(path)
    lines = [line for line in head.split(b"\n") if line.strip()]
    return bool(lines) and _known(head) >= _SHARE * len(lines)


def _known(head: bytes) -> int:
    """How many lines are messages of a server."""
    if _PROMPT.match(head) is not None or _MAYBE.search(head) is None:
        return 0
    listing = Listing("")
    return len([*listing.feed(head), *listing.finish()])


def _is_called_log(path: str) -> bool:
    """Whether a file that is called a log is one of a server beside other programs, or of a program that starts one."""
    from cachedoctor.doctor.analysis.own_reports import has_finding, is_report
    from cachedoctor.engines.detect import certain_literals, strange_lines, written_by

    head = _head(path)
    if is_report(head) or has_finding(head) or _PROMPT.match(head) is not None:
        return False
    strange = strange_lines(head, frozenset())
    return _known(head) >= _MANY or bool(written_by(strange, set()) or certain_literals(head, strange))


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
    paths = {name: os.path.join(folder, name) for name in names}
    known = {
        base_name(name)
        for name, path in paths.items()
        if is_log(path) or (base_name(name).endswith(".log") and _is_called_log(path))
    }
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


def measured_rows(table: ColumnTable, reports: list[Report]) -> Iterator[bytes]:
    """Yield the samples or batches of several reports as rows of one table."""
    numbering = Measurements(table)
    for report in reports:
        rows = report.samples if table is SAMPLES else report.batches
        sessions = map(sanitize.mask, report.sessions)
        yield from numbering.lines(rows.lines() if rows is not None else (), sessions)


class EventRows:
    """Rows of the lines of logs; what went wrong is known when all were taken."""

    def __init__(self, paths: list[str], max_unpacked: int, told: Told = unheard) -> None:
        """``max_unpacked``: bytes that each input may unpack to; ``told``: hears of bytes as they are read."""
        self._told = told
        self._paths = [path for chain in chains(paths) for path in chain]
        self._max_unpacked = max_unpacked
        self.errors: list[SourceError] = []
        """Errors of inputs that could not be read to the end."""

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


def write(table: ColumnTable, rows: Iterator[bytes], out: IO[bytes], ending: Ending) -> None:
    """Write a table.

    Raises:
        CacheDoctorError: it is parquet, and polars is not installed.
    """
    from cachedoctor.report.tables import table_writer

    table_writer.write(table, rows, out, ending)
