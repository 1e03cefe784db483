"""What a process gave back of a log: taken only where it is a result of that log, whatever else a cluster answers.

Names of files, rows and words come from it into the folder and onto the terminal. Knows no engine.
"""

from __future__ import annotations

import msgspec

from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, failed, said
from cachedoctor.doctor.stored_fleet import CUT, FAILED, NO_LOG, READ
from cachedoctor.frames import table_writer
from cachedoctor.frames.columns import FILES, FLEET

_MOST = 1 << 30
"""Bytes of one table or page; the rows of a log of 100 GB take some 100 MB."""


def checked(task: LogTask, found: object) -> LogResult:
    """Return ``found`` where it is a result of the log, else that reading the log failed."""
    if not isinstance(found, LogResult):
        return _refused(task, f"{type(found).__name__[:40]} in the place of a result")
    if (found.part, found.log, found.size) != (task.log.part, task.log.name, task.log.size):
        return _refused(task, "the result of another log")
    if found.status not in (READ, NO_LOG, CUT, FAILED) or not isinstance(found.reason, str | None):
        return _refused(task, "a result with an unknown status")
    if not _is_bytes(found.page) or type(found.is_bug) is not bool:
        return _refused(task, "a result with parts of a wrong type")
    if wrong := _wrong_table(task, found.tables):
        return _refused(task, wrong)
    return msgspec.structs.replace(found, reason=None if found.reason is None else said(found.reason))


def _refused(task: LogTask, what: str) -> LogResult:
    return failed(task, f"its process gave back {what}")


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
