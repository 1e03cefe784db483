"""What one process does for one log: bytes in, tables and a page out. What goes wrong is said in the rows of its files.

Runs in a process of any engine, perhaps on another machine: it is given names and gives bytes, and writes nothing.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

import cachedoctor
from cachedoctor.doctor.fleet.fleet_inputs import Log, Unfound, is_regular, now_at
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.stored_fleet import CUT, FAILED, NO_LOG, READ
from cachedoctor.inputs.sources.object_store import StoredFile, is_remote
from cachedoctor.model import CacheDoctorError, Finding, InputInfo, Report, Session
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.tables.columns import (
    BATCHES,
    FILES,
    FINDINGS,
    FLEET,
    REQUESTS,
    SAMPLES,
    SESSIONS,
    UNSEEN,
    ColumnTable,
)

_MISSED = 500
"""Characters of a reason that are kept."""
_UNKNOWN = "no server log line recognised"
_FACTS = ("engine", "build", "build_min", "build_max", "version", "model", "memory")


class LogTask(msgspec.Struct, frozen=True):
    """One log, and how it is analysed."""

    log: Log
    build: int | None
    max_unpacked: int
    reports: bool = True
    """Each log gets a page of its own."""

    @property
    def options(self) -> str:
        """What has a say in the result beside the log, as it would be typed."""
        build = [] if self.build is None else [f"--build {self.build}"]
        return " ".join([*build, *([] if self.reports else ["--no-reports"])])


class LogResult(msgspec.Struct, frozen=True):
    """What was found in one log, as files."""

    part: str
    log: str
    status: str
    """Status of the worst of the log's files."""
    reason: str | None
    size: int
    """Bytes of its files, as they are stored."""
    tables: dict[str, bytes]
    """Parquet by the name of the table; those without a row are left out."""
    page: bytes | None
    """The report as HTML."""
    is_bug: bool = False
    """A part of cachedoctor failed."""


def run_log(task: LogTask) -> LogResult:
    """Analyse one log.

    Never raises: what goes wrong is in the result.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # there is a process on every core already
    began = time.monotonic()
    try:
        return _analysed(task, began)
    except MemoryError:
        return failed(task, "needs more memory than available", time.monotonic() - began)
    except (CacheDoctorError, OSError) as error:
        return failed(task, str(error), time.monotonic() - began)
    except Exception as error:
        said = f"internal error, please report it: {type(error).__name__}: {error}"
        return failed(task, said, time.monotonic() - began, is_bug=True)


def failed(task: LogTask, reason: str, seconds: float | None = None, *, is_bug: bool = False) -> LogResult:
    """Return the result of a log of which nothing is known but why."""
    infos = [InputInfo(printable(file.path), error=reason) for file in task.log.files]
    rows = _file_rows(task, infos, seconds, known=False)
    return LogResult(
        task.log.part, task.log.name, FAILED, said(reason), task.log.size, {FILES.name: parquet(FILES, rows)}, None,
        is_bug,
    )  # fmt: skip


def unfound(path: Unfound, part: str) -> LogResult:
    """Return the result of a path that leads to no file."""
    row = _blank(path.path, path.path, part) | {"status": FAILED, "reason": said(path.reason)}
    return LogResult(part, path.path, FAILED, row["reason"], 0, {FILES.name: parquet(FILES, [row])}, None)


def _analysed(task: LogTask, began: float) -> LogResult:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.run import drive_chain

    paths = [file.path for file in task.log.files]
    odd = next((path for path in paths if not is_remote(path) and not is_regular(path)), None)
    if odd is not None:
        return failed(task, f"{odd}: is not a regular file")
    analyzer = Analyzer(task.build)
    drive_chain(analyzer, paths, task.max_unpacked)
    report = analyzer.finish()
    infos = report.inputs[: len(paths)]
    known = any(info.recognised for info in infos)
    tables = {table.name: parquet(table, rows(task, report)) for table, rows in _ROWS if known and _has(table, report)}
    page = _page(report) if known and task.reports else None
    files = _file_rows(task, infos, time.monotonic() - began, known)
    tables[FILES.name] = parquet(FILES, files)
    worst = max(files, key=lambda row: _ORDER.index(row["status"]))
    return LogResult(
        task.log.part, task.log.name, worst["status"], worst["reason"], task.log.size, tables, page, analyzer.crashed
    )


_ORDER = (READ, NO_LOG, CUT, FAILED)


def parquet(table: ColumnTable, rows: Iterable[dict[str, Any] | bytes]) -> bytes:
    """Return rows, as dictionaries or JSON with all columns in their order, as a file."""
    from cachedoctor.report.tables import table_writer

    out = io.BytesIO()
    encoded = (row if isinstance(row, bytes) else msgspec.json.encode(row) for row in rows)
    table_writer.write(table, encoded, out, "parquet")
    return out.getvalue()


def _page(report: Report) -> bytes:
    from cachedoctor.report.base import Appearance, write

    out = io.BytesIO()
    write("html", report, out, Appearance())
    return out.getvalue()


# ---- rows


def _requests(_: LogTask, report: Report) -> Iterator[bytes]:
    from cachedoctor.doctor.tables.tables import request_rows

    return request_rows([report])


def _samples(_: LogTask, report: Report) -> Iterator[bytes]:
    from cachedoctor.doctor.tables.tables import measured_rows

    return measured_rows(SAMPLES, [report])


def _batches(_: LogTask, report: Report) -> Iterator[bytes]:
    from cachedoctor.doctor.tables.tables import measured_rows

    return measured_rows(BATCHES, [report])


def _findings(task: LogTask, report: Report) -> Iterator[dict[str, Any]]:
    sessions = {s.index: s for s in map(sanitize.mask, report.sessions)}
    for finding in map(sanitize.mask, report.findings):
        yield _finding(task, finding, sessions)


def _finding(task: LogTask, found: Finding, sessions: dict[int, Session]) -> dict[str, Any]:
    proof = found.primary
    session = sessions.get(proof.session) if proof is not None else None
    if session is None and len(sessions) == 1:
        session = next(iter(sessions.values()))
    first = found.remedies[0] if found.remedies else None
    return {
        "log": printable(task.log.name), "path": found.path, "origin": found.origin,
        "session": None if session is None else session.index,
        **{name: None if session is None else getattr(session, name) for name in _FACTS},
        "code": found.code, "name": found.name, "key": found.key, "severity": found.severity,
        "confidence": found.confidence, "requests": found.count, "tokens": found.cost.tokens, "ms": found.cost.ms,
        "line": None if proof is None else proof.line, "claim": found.claim, "why": found.why,
        "fix": None if first is None else first.text, "commands": [] if first is None else first.commands,
        "json": msgspec.json.encode(found).decode(),
    }  # fmt: skip


def _sessions(task: LogTask, report: Report) -> Iterator[dict[str, Any]]:
    from cachedoctor.report.wire import report_v1

    for session in map(sanitize.mask, report.sessions):
        yield {
            "log": printable(task.log.name), "path": session.path, "origin": session.origin, "session": session.index,
            **{name: getattr(session, name) for name in _FACTS},
            "n_slots": session.n_slots, "n_ctx_slot": session.n_ctx_slot, "requests": session.n_requests,
            "first_line": session.first_line, "last_line": session.last_line,
            "json": msgspec.json.encode(report_v1.session(session)).decode(),
        }  # fmt: skip


def _unseen(task: LogTask, report: Report) -> Iterator[dict[str, Any]]:
    for rule in report.not_evaluated:
        yield {"log": printable(task.log.name), **msgspec.structs.asdict(rule)}


_ROWS: tuple[tuple[ColumnTable, Callable[[LogTask, Report], Iterable[dict[str, Any] | bytes]]], ...] = (
    (REQUESTS, _requests),
    (FINDINGS, _findings),
    (SESSIONS, _sessions),
    (UNSEEN, _unseen),
    (SAMPLES, _samples),
    (BATCHES, _batches),
)


def _has(table: ColumnTable, report: Report) -> bool:
    """Whether a report has rows of this table: no file is made for none."""
    rows: dict[str, Iterable[Any]] = {
        REQUESTS.name: report.requests, FINDINGS.name: report.findings, SESSIONS.name: report.sessions,
        UNSEEN.name: report.not_evaluated,
        SAMPLES.name: () if report.samples is None else report.samples.lines(),
        BATCHES.name: () if report.batches is None else report.batches.lines(),
    }  # fmt: skip
    return next(iter(rows[table.name]), None) is not None


def _file_rows(task: LogTask, infos: list[InputInfo], seconds: float | None, known: bool) -> list[dict[str, Any]]:
    """Return a row for each file of a log, ``infos`` in the same order; ``known``: one of them is of a server."""
    return [_file_row(task, file, info, seconds, known) for file, info in zip(task.log.files, infos, strict=True)]


def _file_row(task: LogTask, file: StoredFile, info: InputInfo, seconds: float | None, known: bool) -> dict[str, Any]:
    status = READ if info.error is None else CUT if info.lines else FAILED
    reason = info.error
    if status == READ:
        status = READ if info.recognised or known else NO_LOG
        reason = _changed(file) or (None if status == READ else _UNKNOWN if info.bytes else "is empty")
    return _blank(file.path, task.log.name, task.log.part) | {
        "status": status,
        "reason": said(reason),
        "size": file.size,
        "stamp": file.stamp,
        "bytes": info.bytes,
        "lines": info.lines,
        "recognised": info.recognised,
        "engine": info.engine,
        "seconds": None if seconds is None else round(seconds, 3),
        "options": task.options,
        "report": f"reports/{task.log.part}.html" if known and task.reports else None,
    }


def _blank(path: str, log: str, part: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(column.name for column in FLEET[FILES.name].columns)
    return row | {
        "path": printable(path),
        "log": printable(log),
        "part": part,
        "version": cachedoctor.__version__,
        "options": "",
    }


def _changed(file: StoredFile) -> str | None:
    """Say so when a file is not what it was when it was found: the next run reads it again."""
    try:
        now = now_at(file.path)
    except CacheDoctorError as error:
        return f"was removed during the read ({error.message})"
    if now == file:
        return None
    if now.size == file.size:
        return "changed during the read; the next run reads it again"
    return f"had {file.size:,} bytes when found and {now.size:,} when read; the next run reads it again"


def said(reason: str | None) -> str | None:
    """A reason as it may be shown: one line, without secrets."""
    return None if reason is None else hidden(printable(" ".join(reason.split())))[:_MISSED]
