"""``fleet``: every file gets its row, nothing is read twice, and the tables are those of ``export`` and ``stats``.

Processes and clusters are tried by ``sh scripts/e2e fleet``; here most logs are read in this process.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import polars as pl
import pytest
from command import FIRST, LOG, PATIENCE, one_line, run, start, wait_for
from conftest import FIXTURES

from cachedoctor.cli import fleet as command_fleet
from cachedoctor.cli import main
from cachedoctor.doctor.analysis import analyzer
from cachedoctor.doctor.compare.compare import compare, report_of
from cachedoctor.doctor.fleet import chosen_engine
from cachedoctor.doctor.fleet.chosen_engine import engine
from cachedoctor.doctor.fleet.fleet import Fleet
from cachedoctor.doctor.fleet.fleet_inputs import logs_at, part_of
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.fleet.ray_engine import RayEngine
from cachedoctor.doctor.fleet.result_folder import ResultFolder
from cachedoctor.doctor.fleet.task_engine import Lost
from cachedoctor.doctor.stored_fleet import StoredFleet
from cachedoctor.doctor.tables.statistics import Gathering
from cachedoctor.inputs.sources.object_store import listed
from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.stats import FleetCause, FleetPage
from cachedoctor.report.html import fleet_page
from cachedoctor.report.tables import fleet_sums

LIMIT = 1 << 30


class Here:
    """An engine that reads in this process, but for logs whose process is killed so many times."""

    width = 3

    def __init__(self, kills: dict[str, int] | None = None, fault: Exception | None = None) -> None:
        self.read: list[str] = []
        self._kills, self._fault = kills or {}, fault
        """What ends the engine once it has read a log."""
        self._tasks: list[LogTask] = []

    def submit(self, task: LogTask) -> None:
        assert len(self._tasks) < self.width
        self._tasks.append(task)

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        if self.read and self._fault is not None:
            raise self._fault
        task = self._tasks.pop(0)
        name = os.path.basename(task.log.name)
        self.read.append(name)
        if self._kills.get(name, 0):
            self._kills[name] -= 1
            return [(task, Lost("the process that read the log was killed"))]
        return [(task, run_log(task))]


def went(paths: list[Path | str], out: Path, here: Here | None = None, **terms: Any) -> tuple[Fleet, FleetPage]:
    """One run; gives what it did, and what its page shows."""
    with ResultFolder(str(out)).opened() as folder:
        reports = terms.get("reports", False)  # a page takes as long as all else
        fleet = Fleet([str(path) for path in paths], folder, terms.get("build"), LIMIT, reports=reports)
        fleet.note_unfound()
        fleet.read(fleet.due(), here or Here())
        return fleet, fleet.page()


def table(out: Path, name: str) -> list[dict[str, Any]]:
    paths = sorted((out / name).glob("*.parquet"))
    return pl.read_parquet(paths).to_dicts() if paths else []


def files(out: Path) -> dict[str, tuple[str, str | None]]:
    """Status and reason of each file, by its name."""
    return {os.path.basename(row["path"]): (row["status"], row["reason"]) for row in table(out, "files")}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two servers, one of them with a rotation; one log is packed."""
    folder = tmp_path / "logs"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    half = LOG.index(b"\n", len(FIRST) // 2) + 1
    (folder / "a" / "server.log.1").write_bytes(LOG[:half])
    (folder / "a" / "server.log").write_bytes(LOG[half:])
    (folder / "b" / "server.log").write_bytes(gzip.compress(LOG))
    return folder


def test_rotations_are_one_log_and_every_log_has_a_page(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fleet, page = went([logs], out, reports=True)
    assert fleet.run.counts == {"read": 2}
    rows = table(out, "files")
    assert sorted(row["path"] for row in rows) == [
        str(logs / "a" / "server.log"), str(logs / "a" / "server.log.1"), str(logs / "b" / "server.log"),
    ]  # fmt: skip
    assert {row["log"] for row in rows} == {str(logs / "a" / "server.log"), str(logs / "b" / "server.log")}
    assert sum(row["bytes"] for row in rows) == 2 * len(LOG)
    requests = table(out, "requests")
    assert [(row["index"], row["prompt_tokens"]) for row in requests] == [(0, 1900), (1, 2035)] * 2
    assert page.sums.prompt_tokens == 2 * (1900 + 2035)
    assert page.sums.requests == 4
    assert [(cause.code, cause.logs) for cause in page.causes] == [("CD101", 2)]
    assert all((out / str(log.report)).is_file() for log in page.logs)


def test_what_fails_is_a_row_and_the_rest_continues(logs: Path, tmp_path: Path) -> None:
    packed = gzip.compress(LOG * 20)
    (logs / "broken.log.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)
    (logs / "empty.log").write_bytes(b"")
    out = tmp_path / "out"
    fleet, page = went([logs, tmp_path / "none.log"], out)
    found = files(out)
    assert found["broken.log.gz"][0] == "cut"
    assert "the gzip data ends early" in str(found["broken.log.gz"][1])
    assert found["picture.png"] == ("no log", "no server log line recognised")
    assert found["empty.log"] == ("no log", "is empty")
    assert found["none.log"][0] == "failed"
    assert fleet.run.counts == {"read": 2, "cut": 1, "no log": 2, "failed": 1}
    assert page.files == {"read": 3, "cut": 1, "no log": 2, "failed": 1}
    assert {os.path.basename(one.path) for one in page.amiss} == {
        "broken.log.gz", "picture.png", "empty.log", "none.log",
    }  # fmt: skip


def test_a_log_that_is_the_same_is_not_read_again(logs: Path, tmp_path: Path) -> None:
    out, first, second, third = tmp_path / "out", Here(), Here(), Here()
    went([logs, tmp_path / "late.log"], out, first)
    assert len(first.read) == 2
    fleet, page = went([logs], out, second)
    assert second.read == []
    assert fleet.run.done_before == 2
    assert page.sums.requests == 4, "the page is of all that is there"
    with open(logs / "a" / "server.log", "ab") as file:
        file.write(b"\n")
    (tmp_path / "late.log").write_bytes(LOG)
    assert files(out)["late.log"][0] == "failed"
    _, page = went([logs, tmp_path / "late.log"], out, third)
    assert sorted(third.read) == ["late.log", "server.log"]
    assert files(out)["late.log"][0] == "read"
    assert page.sums.requests == 6
    with ResultFolder(str(out)).opened() as folder:
        other = Fleet([str(logs)], folder, 9999, LIMIT, reports=False).due()
    assert len(other) == 2, "another build may reuse by other rules"


def test_paths_that_led_nowhere_are_forgotten_when_they_do(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "later"
    folder.mkdir()
    went([folder], out)
    assert files(out) == {"later": ("failed", f"{folder}: contains no files")}
    (folder / "server.log").write_bytes(LOG)
    went([folder], out)
    assert files(out) == {"server.log": ("read", None)}


def test_what_was_found_before_stays_where_nothing_can_be_read_now(tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "server.log"
    log.write_bytes(LOG)
    went([log], out)
    log.unlink()
    os.mkfifo(log)
    _, page = went([log], out)
    assert files(out) == {"server.log": ("failed", f"{log}: is not a regular file")}
    assert page.sums.requests == 2


def test_a_killed_process_costs_its_own_log_and_once_no_more_than_time(logs: Path, tmp_path: Path) -> None:
    for name in ("c.log", "d.log"):
        (logs / name).write_bytes(LOG)
    here = Here({"c.log": 1, "d.log": 2})
    fleet, page = went([logs], tmp_path / "out", here)
    assert sorted(here.read) == ["c.log", "c.log", "d.log", "d.log", "server.log", "server.log"]
    assert fleet.run.again == 2
    assert files(tmp_path / "out")["c.log"] == ("read", None)
    status, reason = files(tmp_path / "out")["d.log"]
    assert status == "failed"
    assert "was killed, twice; the log may need more memory" in str(reason)
    assert page.sums.requests == 6


@pytest.mark.parametrize(
    ("fault", "words", "is_bug"),
    [(MemoryError(), "more memory than available", False), (KeyError("x"), "internal error", True)],
)
def test_a_log_that_makes_us_fail_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, words: str, is_bug: bool
) -> None:
    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(analyzer.Analyzer, "finish", fails)
    (tmp_path / "server.log").write_bytes(LOG)
    fleet, _ = went([tmp_path / "server.log"], tmp_path / "out")
    status, reason = files(tmp_path / "out")["server.log"]
    assert status == "failed"
    assert words in str(reason)
    assert fleet.run.bugs == is_bug


def test_a_log_that_grows_while_it_is_read_says_so_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out, finish = tmp_path / "server.log", tmp_path / "out", analyzer.Analyzer.finish
    log.write_bytes(FIRST.encode())

    def grown(self: analyzer.Analyzer, interrupted: bool = False) -> Any:
        log.write_bytes(LOG)
        return finish(self, interrupted)

    monkeypatch.setattr(analyzer.Analyzer, "finish", grown)
    _, page = went([log], out)
    assert page.sums.requests == 1
    status, reason = files(out)["server.log"]
    assert status == "read"
    assert f"had {len(FIRST):,} bytes when found and {len(LOG):,} when read" in str(reason)
    monkeypatch.setattr(analyzer.Analyzer, "finish", finish)
    _, page = went([log], out)
    assert page.sums.requests == 2
    assert files(out)["server.log"] == ("read", None)


@pytest.mark.sweep
def test_tables_are_those_of_export_and_sums_those_of_stats(logs: Path, tmp_path: Path) -> None:
    """``fleet`` and ``export`` of one log; ``stats`` and ``compare`` of the folder and of the logs."""
    out, log = tmp_path / "out", logs / "b" / "server.log"
    went([logs], out)
    exported = tmp_path / "t.parquet"
    assert run("analyze", log, "-o", exported).returncode == 0
    ours = pl.read_parquet(out / "requests" / f"{part_of(str(log))}.parquet")
    assert ours.equals(pl.read_parquet(exported))
    assert ours.schema == pl.read_parquet_schema(exported)
    sums = json.loads(run("fleet", out, "-f", "json", "--by", "build").stdout)
    of_logs = json.loads(run("fleet", *logs.glob("*/*"), "-f", "json", "--by", "build").stdout)
    assert sums["tables"] == of_logs["tables"]
    assert sums["tables"][0]["rows"][0]["requests"] == 4
    done = run("compare", out, log, "-f", "json")
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert (compared["before"]["requests"], compared["after"]["requests"]) == (4, 2)
    assert {(c["code"], c["change"]) for c in compared["findings"]} == {("CD101", "stayed")}


@pytest.mark.sweep
def test_requests_that_are_read_back_are_those_of_the_report(tmp_path: Path) -> None:
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_bytes(LOG)
    went([log], out)
    stored = json.loads(run("analyze", log, "-f", "json").stdout)
    found = [json.loads(line) for line in StoredFleet(str(out)).report().requests.lines()]
    assert len(found) == 2
    for row, expected in zip(found, stored["requests"], strict=True):
        assert row == {key: value for key, value in expected.items() if key in row}
        assert set(expected) - set(row) <= {"identities", "bounds", "at_least"}


@pytest.mark.sweep
def test_servers_without_requests_are_summed_up_as_their_logs_are(tmp_path: Path) -> None:
    """Samples of vLLM, batches of SGLang, and a program that logs numbers of each request."""
    logs = [
        FIXTURES / "measured" / name for name in ("ollama-restore-cut.log", "sglang-busy.log", "vllm-one-shots.log")
    ]
    fleet, page = went([*logs], tmp_path / "out")
    assert fleet.run.counts == {"read": 3}
    assert page.all_logs == 3
    sums = [Gathering(paths, None, LIMIT).stats(["model"]) for paths in ([str(tmp_path / "out")], [*map(str, logs)])]
    assert sums[0].measured == sums[1].measured
    assert {row.piece for row in sums[0].measured} >= {"response", "batch"}
    compared = compare(StoredFleet(str(tmp_path / "out")).report(), report_of(str(logs[1]), None, LIMIT), ("a", "b"))
    assert compared is not None
    assert compared.before.piece == compared.after.piece == "batch"


def test_hostile_names_reach_no_page_and_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "\x1b[31m<img src=x>\u202e.log").write_bytes(LOG)
    out = tmp_path / "out"
    _, page = went([tmp_path / "in"], out)
    written = io.BytesIO()
    fleet_page.write(page, written)
    text = written.getvalue().decode()
    assert "<img" not in text
    assert "\x1b" not in text
    assert "&lt;img src=x&gt;" in text
    assert "\u202e" not in text
    names = [path.name for path in out.rglob("*.parquet")]
    assert all(name.isascii() and name.isprintable() and "<" not in name for name in names)


def cause(code: str, tokens: int, confidence: str = "high", severity: str = "warning", **fields: Any) -> FleetCause:
    known: dict[str, Any] = {"fix": None, "commands": []} | fields
    return FleetCause(code, "name", severity, 1, 1, tokens, None, "a.log", None, confidence, **known)


def test_causes_that_are_certain_and_have_a_cost_come_first() -> None:
    found = [
        cause("CD1", 0), cause("CD2", 900, "low"), cause("CD3", 100), cause("CD4", 5000, "medium", "note"),
        cause("CD5", 200), cause("CD6", 0, "low", "error"),
    ]  # fmt: skip
    ordered = sorted(found, key=fleet_sums._urgency)
    assert [one.code for one in ordered] == ["CD5", "CD3", "CD2", "CD6", "CD1", "CD4"]


def test_each_cause_has_the_first_step_of_its_costliest_finding(logs: Path, tmp_path: Path) -> None:
    _, page = went([logs], tmp_path / "out")
    [found] = page.causes
    assert (found.code, found.confidence, found.commands) == (
        "CD101", "high", ["export CLAUDE_CODE_ATTRIBUTION_HEADER=0"],
    )  # fmt: skip
    written = io.BytesIO()
    fleet_page.write(page, written)
    text = written.getvalue().decode()
    assert text.index('id="causes"') < text.index('id="logs"')
    assert "<code data-copy>export CLAUDE_CODE_ATTRIBUTION_HEADER=0</code>" in text
    assert "<details>" not in text  # two logs, one cause


def test_more_than_ten_are_folded_and_files_that_failed_are_told_from_those_without_a_log(
    logs: Path, tmp_path: Path
) -> None:
    _, page = went([logs], tmp_path / "out")
    page.causes = [cause(f"CD{number}", number) for number in range(100, 112)]
    page.logs = [msgspec.structs.replace(page.logs[0], log=f"{number}.log") for number in range(13)]
    page.files = {"read": 13, "no log": 3, "failed": 1, "cut": 2}
    written = io.BytesIO()
    fleet_page.write(page, written)
    text = written.getvalue().decode()
    assert "<summary>2 more causes</summary>" in text
    assert "<summary>3 more logs</summary>" in text
    assert "13 files read, 3 files without server log lines." in text
    assert '<p class="warn">1 file could not be read, 2 files could not be read to the end' in text


def test_the_result_is_not_an_input_of_itself(logs: Path) -> None:
    out = logs / "result"
    (out / "files").mkdir(parents=True)
    (out / "files" / "x.parquet").write_bytes(b"")
    (logs / ".hidden").write_bytes(LOG)
    found, unfound = logs_at([str(logs)], str(out))
    assert [log.name for log in found] == [str(logs / "a" / "server.log"), str(logs / "b" / "server.log")]
    assert unfound == []


def test_logs_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    names = [str(tmp_path / name / "server.log") for name in ("a-b", "a")]
    assert len({part_of(name) for name in [*names, "a/b/server.log", "a-b-server.log", "a.b-server.log"]}) == 5


# ---- object storage


class Objects:
    """What fsspec gives for a scheme: objects by their names, each with bytes."""

    def __init__(self, objects: dict[str, bytes], fault: Exception | None = None) -> None:
        self.objects, self._fault = objects, fault

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        if self._fault is not None:
            raise self._fault
        prefix = path.removeprefix("s3://")
        return {name: self.info(name) for name in self.objects if name.startswith(prefix)}

    def info(self, path: str) -> dict[str, Any]:
        data = self.objects[path.removeprefix("s3://")]
        return {"type": "file", "size": len(data), "ETag": f'"{hash(data)}"'}

    def invalidate_cache(self) -> None:
        """There is none."""

    def open(self, path: str, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self.objects[path.removeprefix("s3://")])


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Callable[[Objects], None]:
    return lambda found: monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(filesystem=lambda _: found))


def test_objects_are_read_like_files(objects: Callable[[Objects], None], tmp_path: Path) -> None:
    store = Objects({"b/x/server.log": LOG, "b/x/server.log.1.gz": gzip.compress(LOG), "b/other": b"nothing\n"})
    objects(store)
    fleet, page = went(["s3://b/"], tmp_path / "out")
    assert fleet.run.counts == {"read": 1, "no log": 1}
    assert page.sums.requests == 4
    assert page.logs[0].log == "s3://b/x/server.log"
    here = Here()
    went(["s3://b/"], tmp_path / "out", here)
    assert here.read == []
    store.objects["b/x/server.log"] += b"\n"
    went(["s3://b/"], tmp_path / "out", here)
    assert here.read == ["server.log"]


class NoCredentialsError(Exception):
    """As botocore has it."""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (NoCredentialsError("Unable to locate credentials"), "s3://b/: no credentials (NoCredentialsError)"),
        (PermissionError("Forbidden"), "s3://b/: access denied"),
        (FileNotFoundError("The specified bucket does not exist"), "s3://b/: no such object"),
        (TimeoutError("line\nof\ttwo"), "s3://b/: cannot be read (TimeoutError: line of two)"),
    ],
)
def test_what_an_object_store_refuses_is_a_row(
    objects: Callable[[Objects], None], tmp_path: Path, fault: Exception, words: str
) -> None:
    """What becomes a row is in ``unfound``; the rest continues."""
    objects(Objects({}, fault))
    (tmp_path / "server.log").write_bytes(LOG)
    address = words[: len("s3://b/")]
    found, unfound = logs_at([address, str(tmp_path)], str(tmp_path / "out"))
    assert [(one.path, one.reason) for one in unfound] == [(address, words)]
    assert [log.name for log in found] == [str(tmp_path / "server.log")]
    with pytest.raises(CacheDoctorError) as error:
        listed(address)
    if "no credentials" in words:
        assert "AWS_PROFILE" in error.value.hint


def test_without_the_extra_an_address_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    found, unfound = logs_at(["s3://b/x"], str(tmp_path))
    assert found == []
    assert [one.reason for one in unfound] == ["s3://b/x: the library for s3:// is not installed"]
    done = run("analyze", "s3://b/x.log")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


# ---- engines


def test_without_its_extra_an_engine_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CacheDoctorError, match="--engine ray needs ray") as error, engine("ray", 1, None):
        pass
    assert error.value.hint == install("ray", "tables")


class RpcError(Exception):
    """As gRPC has it, of a client of ``ray://``."""

    __module__ = "grpc._channel"


class RayError(Exception):
    """As Ray has it."""


class LocalRayletDiedError(RayError):
    """As Ray has it, of each task when the machine that we are connected to is gone."""


class WorkerCrashedError(RayError):
    """As Ray has it, of a task whose process was killed."""


class Ray:
    """What the library does with one task: each of ``faults`` by the call that raises it."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        LocalRayletDiedError=LocalRayletDiedError,
        OutOfMemoryError=type("OutOfMemoryError", (RayError,), {}),
    )

    def __init__(self, **faults: Exception) -> None:
        self._faults = faults

    def _do(self, call: str) -> None:
        if call in self._faults:
            raise self._faults[call]

    def remote(self, **_: object) -> Callable[[object], object]:
        return lambda _: SimpleNamespace(remote=lambda _: self._do("submit") or "task")

    def cluster_resources(self) -> dict[str, float]:
        self._do("width")
        return {"CPU": 2.0}

    def wait(self, tasks: list[object], num_returns: int, timeout: float) -> tuple[list[object], list[object]]:
        self._do("wait")
        return tasks[:num_returns], []

    def get(self, _: object) -> None:
        self._do("get")


def went_through_ray(log: Path, ray: Ray) -> list[tuple[LogTask, LogResult | Lost]]:
    [found], _ = logs_at([str(log)], "")
    running = RayEngine(ray)
    assert running.width == 4
    running.submit(LogTask(found, None, LIMIT))
    return running.wait()


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("width", ConnectionError()),
        ("submit", RpcError()),
        ("wait", RayError()),
        ("get", LocalRayletDiedError()),
    ],
)
def test_a_cluster_of_ray_that_is_gone_is_not_a_fault_of_the_logs(tmp_path: Path, call: str, fault: Exception) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    with pytest.raises(CacheDoctorError, match=rf"Ray: the cluster is gone \({type(fault).__name__}\)") as error:
        went_through_ray(tmp_path, Ray(**{call: fault}))
    assert "run the same command again" in error.value.hint
    [(_, lost)] = went_through_ray(tmp_path, Ray(get=WorkerCrashedError()))
    assert isinstance(lost, Lost)
    with pytest.raises(KeyError):
        went_through_ray(tmp_path, Ray(wait=KeyError("a fault of ours")))


@pytest.mark.sweep
def test_the_command_reads_in_processes_of_its_own(logs: Path, tmp_path: Path) -> None:
    (logs / "broken.log.gz").write_bytes(gzip.compress(LOG)[:-9])
    out = tmp_path / "out"
    done = run("fleet", logs, "-o", out, "-j", "1")
    assert done.returncode == 2
    one_line(done, "broken.log.gz: the gzip data ends early", "another run retries this one")
    assert done.stdout.decode().startswith("3 logs: 2 read, 1 not read to the end.\n6 requests, 0 % reused, ")
    assert (out / "index.html").read_bytes().startswith(b"<!doctype html>")
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize("dangling", [False, True])
def test_a_result_that_is_not_a_folder_is_refused(tmp_path: Path, dangling: bool) -> None:
    out = tmp_path / "out.parquet"
    if dangling:
        out.symlink_to(tmp_path / "none")
    else:
        out.write_bytes(b"mine")
    with pytest.raises(CacheDoctorError, match=r"out\.parquet: is not a folder"), ResultFolder(str(out)).opened():
        pass
    assert dangling or out.read_bytes() == b"mine"


@pytest.mark.sweep
def test_statuses_and_refusals(logs: Path, tmp_path: Path) -> None:
    done = run("fleet", logs, "-o", tmp_path / "out", "-j", "2", "--no-reports")
    assert (done.returncode, done.stderr) == (0, b"")
    assert list((tmp_path / "out" / "reports").iterdir()) == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.log").write_text("nothing of a server\n")
    done = run("fleet", tmp_path / "other" / "x.log", "-o", tmp_path / "none")
    assert done.returncode == 3
    one_line(done, "does not look like a log")
    done = run("fleet", logs, "-o", tmp_path / "other")
    assert done.returncode == 2
    one_line(done, "contains files that are not fleet results", "give a new or empty folder")
    done = run("fleet", logs, "-o", tmp_path / "out", "--address", "tcp://x")
    assert done.returncode == 2
    one_line(done, "--address: works only with a cluster")
    with ResultFolder(str(tmp_path / "out")).opened():
        done = run("fleet", logs, "-o", tmp_path / "out")
    assert done.returncode == 2
    one_line(done, "another run of cachedoctor writes to this folder")


@pytest.mark.sweep
def test_an_interrupted_run_shows_what_is_done_and_continues(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"s{number:02}").mkdir()
        (tmp_path / f"s{number:02}" / "server.log").write_bytes(LOG)
    out = tmp_path / "out"
    with start("fleet", tmp_path, "-o", out, "-j", "1") as process:
        wait_for(lambda: len(list((out / "files").glob("*.parquet"))) > 1, "log that is done")
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert error == b""
    done = len(list((out / "files").glob("*.parquet")))
    assert 1 < done < 60
    assert said.decode().startswith(f"{done} logs: {done} read.\n")
    assert (out / "index.html").is_file()
    again = run("fleet", tmp_path, "-o", out, "-j", "2")
    assert again.returncode == 0
    assert again.stdout.decode().startswith(f"60 logs: {60 - done} read, {done} already done in an earlier run.\n")


@pytest.fixture
def pipes() -> Iterator[None]:
    """The command lets SIGPIPE end it; in this process other tests have servers whose clients leave."""
    before = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, before)


@pytest.mark.sample(1)
@pytest.mark.usefixtures("pipes")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            CacheDoctorError("Ray: the cluster is gone", "start it again"),
            "error: Ray: the cluster is gone (hint:",
        ),
        (KeyError("x"), "internal error: KeyError: 'x'"),
    ],
)
def test_an_engine_that_fails_midway_leaves_a_page_of_what_is_done(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    fault: Exception, words: str,
) -> None:  # fmt: skip
    engines = iter([Here(fault=fault), Here()])
    monkeypatch.setattr(chosen_engine, "engine", lambda *_: contextlib.nullcontext(next(engines)))
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["cachedoctor", "fleet", str(logs), "-o", str(out), "--no-reports", "-q"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert words in capfd.readouterr().err
    assert len({row["log"] for row in table(out, "files")}) == 1
    first = (out / "index.html").read_text()
    assert "Not yet read: 1 log." in first
    assert "2 requests" in first
    assert len(list(StoredFleet(str(out)).report().requests)) == 2
    with pytest.raises(SystemExit, match="0"):
        main()
    page = (out / "index.html").read_text()
    assert "Not yet read" not in page
    assert "4 requests" in page
    assert len({row["log"] for row in table(out, "files")}) == 2


def test_the_page_is_kept_up_while_logs_are_read(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 101.0, 120.0, 200.0, 200.0])
    monkeypatch.setattr(command_fleet, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with ResultFolder(str(tmp_path / "out")).opened() as folder:
        fleet = Fleet([str(logs)], folder, None, LIMIT, reports=False)
        due, index = fleet.due(), command_fleet._Index(fleet, folder)
        written = []
        monkeypatch.setattr(folder, "put_page", written.append)
        fleet.read(due, Here(), paused=index.refresh)
        assert [b"Not yet read: 1 log." in page for page in written] == [True], "a page took a second"
        index.refresh()
        assert [b"Not yet read" in page for page in written] == [True, False]


@pytest.mark.sweep
def test_a_process_that_died_without_work_is_replaced(logs: Path, tmp_path: Path) -> None:
    found, _ = logs_at([str(logs)], str(tmp_path / "out"))
    first, second = (LogTask(log, None, LIMIT) for log in found)
    with engine("local", 1, None) as running:
        running.submit(first)
        [(_, result)] = running.wait()
        assert isinstance(result, LogResult)
        [process] = multiprocessing.active_children()
        process.kill()
        process.join()
        running.submit(second)
        [(task, result)] = running.wait()
    assert task is second
    assert isinstance(result, LogResult)
    assert result.status == "read"


def test_a_log_without_requests_and_statistics_has_neither() -> None:
    log = FIXTURES / "measured" / "vllm-log-stats-disabled.log"
    done = run("fleet", str(log))
    assert done.returncode == 3
    one_line(done, f"{log}: has neither requests nor statistics of reuse", "cachedoctor analyze")


def test_of_a_folder_with_subfolders_alone_it_is_said_what_reads_them(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "0.log").write_bytes(LOG)
    done = run("analyze", str(tmp_path))
    assert done.returncode == 2
    one_line(done, "contains no log", "skips subfolders, but cachedoctor fleet reads them")
