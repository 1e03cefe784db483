"""What a worker of a fleet gives back is a result of its log, or that log failed; the folder takes nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import LOG

from cachedoctor.doctor.fleet import result_folder
from cachedoctor.doctor.fleet.fleet import Fleet
from cachedoctor.doctor.fleet.fleet_inputs import logs_at
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, parquet, run_log
from cachedoctor.doctor.fleet.result_folder import ResultFolder, checked
from cachedoctor.doctor.fleet.task_engine import Lost
from cachedoctor.model import CacheDoctorError
from cachedoctor.report.tables.columns import FILES, FINDINGS

LIMIT = 1 << 30


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogTask, LogResult]:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "a.log").write_bytes(LOG)
    [log], _ = logs_at([str(folder)], "")
    task = LogTask(log, None, LIMIT)
    return task, run_log(task)


def changed(**parts: Any) -> Callable[[LogResult], object]:
    return lambda result: msgspec.structs.replace(result, **parts)


def with_table(name: Any, data: Any) -> Callable[[LogResult], object]:
    return lambda result: msgspec.structs.replace(result, tables={**result.tables, name: data})


HOSTILE: dict[str, Callable[[LogResult], object]] = {
    "nothing": lambda _: None,
    "text": lambda _: "x" * 1_000_000,
    "a dictionary": msgspec.structs.asdict,
    "a place outside of the folder": changed(part="../../outside"),
    "a place below the root": changed(part="/tmp/outside"),
    "another log": changed(log="\x1b[2J"),
    "a size that is text": changed(size="9"),
    "a negative size": changed(size=-1),
    "an unknown status": changed(status="\x1b[31mread"),
    "a status that is a list": changed(status=[]),
    "a reason that is a number": changed(reason=7),
    "a page that is text": changed(page="<script>"),
    "a fault that is no flag": changed(is_bug=10**30),
    "tables that are a list": changed(tables=[]),
    "no table of files": changed(tables={}),
    "a table of no name that is known": with_table("../../x", b""),
    "a table without a name": with_table(None, b""),
    "a table that is no parquet": with_table(FINDINGS.name, b"PAR1" + b"\xff" * 4_000 + b"PAR1"),
    "an empty table": with_table(FILES.name, b""),
    "a table that is none": with_table(FINDINGS.name, None),
    "a table of other columns": with_table(FILES.name, parquet(FINDINGS, [])),
    "no rows of files": with_table(FILES.name, parquet(FILES, [])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_a_result_of_the_log_is_a_log_that_failed(name: str, good: tuple[LogTask, LogResult]) -> None:
    task, result = good
    found = checked(task, HOSTILE[name](result))
    assert (found.part, found.log, found.status, found.size) == (result.part, result.log, "failed", result.size)
    assert found.reason is not None
    assert found.reason.startswith("its process returned ")
    assert len(found.reason) < 100
    assert found.reason.isprintable()
    assert list(found.tables) == [FILES.name]


def test_rows_of_another_log_are_refused(good: tuple[LogTask, LogResult], tmp_path: Path) -> None:
    """The other log would count as read."""
    task, result = good
    (tmp_path / "b.log").write_bytes(LOG)
    [log], _ = logs_at([str(tmp_path)], "")
    other = run_log(LogTask(log, None, LIMIT))
    assert checked(task, with_table(FILES.name, other.tables[FILES.name])(result)).status == "failed"


def test_a_result_is_taken_as_it_is_and_its_words_are_one_short_line(good: tuple[LogTask, LogResult]) -> None:
    task, result = good
    assert checked(task, result) == result
    said = checked(task, changed(reason="\x1b[2J\r\n" + "words " * 10_000)(result)).reason
    assert said is not None
    assert "\n" not in said
    assert "\r" not in said
    assert len(said) < 2_000


class Worker:
    """An engine whose process gives back what it likes."""

    width = 1

    def __init__(self, gives: Callable[[LogResult], Any]) -> None:
        self._gives = gives
        self._task: LogTask | None = None

    def submit(self, task: LogTask) -> None:
        self._task = task

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        assert self._task is not None
        return [(self._task, self._gives(run_log(self._task)))]


def test_a_hostile_worker_writes_to_no_other_place(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(LOG)
    out = tmp_path / "out" / "in" / "fleet"
    with ResultFolder(str(out)).opened() as folder:
        fleet = Fleet([str(tmp_path / "logs")], folder, None, LIMIT)
        fleet.read(fleet.due(), Worker(changed(part="../../outside")))
        assert fleet.run.counts == {"failed": 1}
        assert [file.status for file in fleet.page().amiss] == ["failed"]
    assert not list(tmp_path.rglob("outside*"))


def test_a_disk_that_is_full_is_said_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a run; what is complete stays, and the log is read by the next run."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(LOG)
    out = tmp_path / "out"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ResultFolder(str(out)).opened() as folder:
        fleet = Fleet([str(tmp_path / "logs")], folder, None, LIMIT)
        due = fleet.due()
        with monkeypatch.context() as patched:
            patched.setattr(result_folder.os, "replace", full)
            with pytest.raises(CacheDoctorError) as caught:
                fleet.read(due, Worker(lambda result: result))
        assert caught.value.message == f"{out}: cannot be written (No space left on device)"
        assert "free some space" in caught.value.hint
        assert not list(out.rglob("*.parquet"))
        again = Fleet([str(tmp_path / "logs")], folder, None, LIMIT)
        assert len(again.due()) == 1
