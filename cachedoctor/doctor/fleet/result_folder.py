"""The result folder of a fleet, and the check of what a worker process returned for a log."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

import msgspec

import cachedoctor
from cachedoctor.doctor import scratch
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, failed, said
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.stored_fleet import CUT, FAILED, KEPT, MARK, NO_LOG, READ, SCHEMA, Head, parts
from cachedoctor.model import CacheDoctorError, RuleInfo
from cachedoctor.report.tables import table_writer
from cachedoctor.report.tables.columns import FILES, FLEET

_MOST = 1 << 30
"""Bytes of one table or page; the rows of a log of 100 GB take some 100 MB."""


def checked(task: LogTask, found: object) -> LogResult:
    """Return ``found`` where it is a result of the log, else that reading the log failed."""
    if not isinstance(found, LogResult):
        return _refused(task, f"{type(found).__name__[:40]} instead of a result")
    if (found.part, found.log, found.size) != (task.log.part, task.log.name, task.log.size):
        return _refused(task, "the result of another log")
    if found.status not in (READ, NO_LOG, CUT, FAILED) or not isinstance(found.reason, str | None):
        return _refused(task, "a result with an unknown status")
    if not _is_bytes(found.page) or type(found.is_bug) is not bool:
        return _refused(task, "a result with fields of the wrong type")
    if wrong := _wrong_table(task, found.tables):
        return _refused(task, wrong)
    return msgspec.structs.replace(found, reason=None if found.reason is None else said(found.reason))


def _refused(task: LogTask, what: str) -> LogResult:
    return failed(task, f"its process returned {what}")


def _is_bytes(found: object) -> bool:
    return found is None or (type(found) is bytes and len(found) <= _MOST)


def _wrong_table(task: LogTask, tables: object) -> str:
    """Say what is wrong with the tables of a result; nothing where they can be read by whoever sums them up."""
    if type(tables) is not dict or FILES.name not in tables:
        return "a result without its table of files"
    for name, data in tables.items():
        table = FLEET.get(name) if type(name) is str else None
        if table is None or data is None or not _is_bytes(data) or not table_writer.fits(table, data):
            return "a table that cannot be read"
    parts = table_writer.texts(tables[FILES.name], "part", len(task.log.files))
    return "" if parts == [task.log.part] * len(task.log.files) else "rows of another log"


PAGES, INDEX = "reports", "index.html"


class ResultFolder:
    """The folder, held by one run at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[ResultFolder]:
        """Make it, unless it is there, and keep other runs from it.

        Raises:
            CacheDoctorError: it is none, holds other things, or another run writes to it.
        """
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise CacheDoctorError(f"{self.path}: is not a folder", "give a folder for the result, with -o DIR")
        try:
            os.makedirs(self.path, exist_ok=True)
            inside = os.listdir(self.path)
            if inside and MARK not in inside:
                raise CacheDoctorError(
                    f"{self.path}: contains files that are not fleet results", "give a new or empty folder with -o"
                )
            self.put_head()  # first: without it the next run takes all else for other things
            for name in (*FLEET, PAGES):
                os.makedirs(os.path.join(self.path, name), exist_ok=True)
                scratch.clear_files(os.path.join(self.path, name))
            scratch.clear_files(self.path)
            lock = os.open(os.path.join(self.path, ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            if scratch.HAS_LOCKS and not scratch.lock(lock):
                raise CacheDoctorError(
                    f"{self.path}: another run of cachedoctor writes to this folder",
                    "wait until the other run ends, or give another folder with -o",
                )
            yield self
        finally:
            os.close(lock)

    def put_head(self) -> None:
        """Say whose folder it is, and what its version looks for."""
        from cachedoctor.diagnosis.rules import registry

        rules = sorted(registry.load()[0], key=lambda rule: rule.code)
        infos = [RuleInfo(r.code, r.name, r.summary, r.url) for r in rules]
        self._write(MARK, msgspec.json.encode(Head(SCHEMA, cachedoctor.__version__, infos)) + b"\n")

    def done(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all files that were read before, by the log that they are a part of."""
        from cachedoctor.report.tables.fleet_sums import rows_of

        found: dict[str, list[dict[str, Any]]] = {}
        for row in rows_of(parts(self.path, FILES.name), FILES):
            found.setdefault(row["part"], []).append(row)
        return found

    def put(self, result: LogResult) -> None:
        """Take the result of a log in the place of an earlier one, which stays where nothing could be read now."""
        if result.status != FAILED:
            for name in FLEET:
                if name != FILES.name:
                    self._put(name, f"{result.part}.parquet", result.tables.get(name))
            self._put(PAGES, f"{result.part}.html", result.page)
        self._put(FILES.name, f"{result.part}.parquet", result.tables[FILES.name])

    def forget(self, part: str) -> None:
        """Remove the rows of a log's files."""
        self._put(FILES.name, f"{part}.parquet", None)

    def put_page(self, page: bytes) -> None:
        """Write the page of the whole."""
        self._write(INDEX, page)

    def _put(self, folder: str, name: str, data: bytes | None) -> None:
        if data is not None:
            self._write(os.path.join(folder, name), data)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, folder, name))

    def _write(self, name: str, data: bytes) -> None:
        target = os.path.join(self.path, name)
        new = scratch.new_name(os.path.dirname(target))
        try:
            with open(new, "xb") as file:
                file.write(data)
            os.replace(new, target)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(new)
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise

    def _unwritable(self, error: OSError) -> CacheDoctorError:
        hint = "give a writable folder with -o DIR"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "free some space, then run the same command again; the run then continues"
        return CacheDoctorError(f"{self.path}: cannot be written ({error.strerror or error})", hint)


def is_done(task: LogTask, rows: list[dict[str, Any]]) -> bool:
    """Whether ``rows`` say of all files of a log that they were read as they are now, by this version, likewise."""
    now = {(printable(file.path), file.size, file.stamp) for file in task.log.files}
    then = {(row["path"], row["size"], row["stamp"]) for row in rows}
    same = all(row["version"] == cachedoctor.__version__ and row["options"] == task.options for row in rows)
    return now == then and same and all(row["status"] in KEPT for row in rows)
