"""The folder with the result of a fleet: a file of each table for each log, put in place as a whole.

The row of a log in ``files`` is written last: what stands there is complete. Nothing else is remembered, so that a run
that was killed goes on where it ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

import msgspec

import cachedoctor
from cachedoctor.doctor import scratch
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask
from cachedoctor.doctor.naming import printable
from cachedoctor.doctor.stored_fleet import FAILED, KEPT, MARK, SCHEMA, Head, parts
from cachedoctor.frames.columns import FILES, FLEET
from cachedoctor.model import CacheDoctorError, RuleInfo

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
            raise CacheDoctorError(f"{self.path}: is no folder", "give a folder for the result, with -o DIR")
        try:
            os.makedirs(self.path, exist_ok=True)
            inside = os.listdir(self.path)
            if inside and MARK not in inside:
                raise CacheDoctorError(f"{self.path}: holds other things", "give a new folder with -o")
            for name in (*FLEET, PAGES):
                os.makedirs(os.path.join(self.path, name), exist_ok=True)
                scratch.clear_files(os.path.join(self.path, name))
            scratch.clear_files(self.path)
            self.put_head()
            lock = os.open(os.path.join(self.path, ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            if scratch.HAS_LOCKS and not scratch.lock(lock):
                raise CacheDoctorError(f"{self.path}: another run writes to it", "wait for its end, or give another -o")
            yield self
        finally:
            os.close(lock)

    def put_head(self) -> None:
        """Say whose folder it is, and what its version looks for."""
        from cachedoctor.rules import registry

        rules = sorted(registry.load()[0], key=lambda rule: rule.code)
        infos = [RuleInfo(r.code, r.name, r.summary, r.url) for r in rules]
        self._write(MARK, msgspec.json.encode(Head(SCHEMA, cachedoctor.__version__, infos)) + b"\n")

    def done(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all files that were read before, by the log that they are a part of."""
        from cachedoctor.frames.fleet_sums import rows_of

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
        hint = "give a folder that you may write, with -o DIR"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "free some space, then run it again: it goes on"
        return CacheDoctorError(f"{self.path}: cannot be written ({error.strerror or error})", hint)


def is_done(task: LogTask, rows: list[dict[str, Any]]) -> bool:
    """Whether ``rows`` say of all files of a log that they were read as they are now, by this version, likewise."""
    now = {(printable(file.path), file.size, file.stamp) for file in task.log.files}
    then = {(row["path"], row["size"], row["stamp"]) for row in rows}
    same = all(row["version"] == cachedoctor.__version__ and row["options"] == task.options for row in rows)
    return now == then and same and all(row["status"] in KEPT for row in rows)
