"""``analyze --jobs``: the report is that of one process, however the logs are cut, and nothing is left behind."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from command import FIRST, HEAD, PATIENCE, PYTHON, SECOND, SIMILARITY, TURN, one_line, run, wait_for
from conftest import CASES, content_of

from cachedoctor.doctor import processes
from cachedoctor.doctor.analysis import intake, parallel
from cachedoctor.doctor.analysis import parallel as cuts
from cachedoctor.doctor.analysis import run as driving
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.run import feed_all
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import GivenOption
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import text_report
from cachedoctor.report.wire import report_v1

ONE = HEAD + TURN.format(task=0, tokens=1900, similarity="", diff="")
LIVES = FIRST + SECOND
STARTED_TWICE = HEAD + HEAD + TURN.format(task=0, tokens=2035, similarity=SIMILARITY.format(tokens=2035), diff="")
LOGS = [log for case in CASES if len(log := content_of(case)) < 40_000]


class Inline:
    """Does the work at once, in this process; what goes in and out is copied as between processes."""

    width = 2

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.ended: list[tuple[Any, Any]] = []

    def submit(self, task: Any) -> None:
        self.ended.append((task, pickle.loads(pickle.dumps(self.work(pickle.loads(pickle.dumps(task)))))))

    def wait(self) -> list[tuple[Any, Any]]:
        return [self.ended.pop()]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Small parts, and no processes; gives how many parts of a log were read, and how many of those were joined."""
    pairs: list[tuple[int, int]] = []
    of_log = parallel._Readings.of_log

    def counted(readings: parallel._Readings, units: Any) -> Any:
        done = of_log(readings, units)
        pairs.append((len(units), len(done)))
        return done

    monkeypatch.setattr(parallel, "_pool", lambda work, jobs: nullcontext(Inline(work)))
    monkeypatch.setattr(parallel._Readings, "of_log", counted)
    monkeypatch.setattr(cuts, "LEAST", 400)
    monkeypatch.setattr(intake, "EXCERPT_LINES", 0)  # a part that is as large as parts are is never an excerpt
    return pairs


def reported(paths: list[str], jobs: int, build: int | None = None, given: list[GivenOption] | None = None) -> Any:
    """The report in both formats, and the errors."""
    analyzer = Analyzer(build, None, given)
    if jobs > 1:
        terms = parallel.Terms(build, given or [], True, MAX_BYTES)
        errors = parallel.feed_parallel(analyzer, paths, jobs, terms)
    else:
        errors = feed_all(analyzer, paths)
    report = analyzer.finish()
    out, shown = io.BytesIO(), io.StringIO()
    report_v1.render(sanitize.report(report), out)
    text_report.render(sanitize.report(report), shown, 100)
    return out.getvalue().decode(), shown.getvalue(), [(error.message, error.hint) for error in errors]


def same(log: str | bytes, folder: Path, jobs: int = 4) -> str:
    """The JSON report of a log, which is the same in all processes."""
    path = folder / "server.log"
    path.write_bytes(log.encode() if isinstance(log, str) else log)
    alone = reported([str(path)], 1)
    assert reported([str(path)], jobs) == alone
    return str(alone[0])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lives_are_read_side_by_side(seen: list[tuple[int, int]], tmp_path: Path, end: str) -> None:
    same((LIVES * 6).replace("\n", end), tmp_path)
    assert seen == [(6, 6)]  # a part for each life


def test_a_life_without_requests_does_not_hide_that_the_server_was_restarted(
    seen: list[tuple[int, int]], tmp_path: Path
) -> None:
    report = same(LIVES * 4 + STARTED_TWICE * 4, tmp_path)
    assert seen[0][1] > 1
    assert report.count('"restarted":{"value":true') == 11


@pytest.mark.sample(2)
@pytest.mark.parametrize("quote", ["\r0.01.002.003 I srv  get_availabl: updating prompt cache", "\r", "\x1b[0m", "\0"])
def test_a_line_that_another_one_overwrites_begins_no_life(
    seen: list[tuple[int, int]], tmp_path: Path, quote: str
) -> None:
    same((LIVES + f"build: 6900 (c22473b58) with GNU 12 for x{quote}\n") * 6, tmp_path)
    assert len(seen) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "line",
    [
        "0.12.345.678 I srv  handle_sleep: server is entering sleeping state",
        "[50021] srv    load_model: loading model '/models/x.gguf'",
        "srv    load_model: loading model '/models/x.gguf'",
        "<think> srv    load_model: loading model '/models/x.gguf'",
        '{"log":"half a line","stream":"stderr"}',
        "2026-11-20 12:00:00 slot update_slots: id  0 | task 9 | new prompt",
        "2026-11-20 12:00:00 [INFO]",
    ],
)
def test_what_a_line_before_a_cut_may_say(seen: list[tuple[int, int]], tmp_path: Path, line: str) -> None:
    for at in (0, len(FIRST.splitlines())):
        lines = LIVES.splitlines(keepends=True)
        same((LIVES + "".join([*lines[:at], line + "\n", *lines[at:]])) * 3, tmp_path)
    assert len(seen) == 2


def test_the_servers_that_are_told_apart_are_counted_in_the_whole_log(
    seen: list[tuple[int, int]], tmp_path: Path
) -> None:
    many = "".join(f"[{port}] hello\n" for port in range(50_000, 50_256))
    one_more = "".join(f"[51000] {line}" for line in ONE.splitlines(keepends=True))
    same(many + LIVES * 6 + one_more, tmp_path)
    assert len(seen) == 1


@pytest.mark.sweep
def test_any_logs_after_each_other(seen: list[tuple[int, int]], tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(25):
        logs = [chance.choice(LOGS).splitlines(keepends=True) for _ in range(chance.randint(2, 5))]
        halves = [log[: chance.randint(1, len(log))] if chance.random() < 0.3 else log for log in logs]
        same(b"".join(b"".join(log) for log in halves), tmp_path, chance.choice([2, 3, 9]))
    assert any(joined > 1 for _, joined in seen)


def test_several_logs(seen: list[tuple[int, int]], tmp_path: Path) -> None:
    names = {
        "server.log": LIVES.encode(),
        "server.log.1": LIVES.encode(),
        "server.log.2.gz": gzip.compress(FIRST.encode()),
        "cut.log.gz": gzip.compress(LIVES.encode())[:-20],
        "empty.log": b"",
        "other.log": b"hello\n",
        "wide.log": LIVES.encode("utf-16"),
        os.fsdecode(b"x\xfe.log"): LIVES.encode(),
        os.fsdecode(b"x\xff.log"): gzip.compress(LIVES.encode())[:-20],
    }
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in [*names, "none.log", "server.log", "."]]
    alone = reported(paths, 1, 9000, parse("llama-server -np 2 --cache-ram 0"))
    assert reported(paths, 3, 9000, parse("llama-server -np 2 --cache-ram 0")) == alone
    assert [message.rpartition(": ")[2].partition(" (")[0] for message, _ in alone[2]] == [
        "the gzip data ends early", "the gzip data ends early", "no such file", "is a directory",
    ]  # fmt: skip
    assert len(seen) == 9


# ---- processes


def test_as_many_processes_as_cores_have_a_part_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 3)
    monkeypatch.setattr(driving, "PART", 100)
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for log in logs:
        log.write_bytes(b"x" * 120)
    assert driving.processes_for([str(logs[0])]) == 1
    assert driving.processes_for([*map(str, logs), str(tmp_path / "none.log"), str(tmp_path)]) == 2
    logs[1].write_bytes(b"x" * 1000)
    assert driving.processes_for(map(str, logs)) == 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs of one request each, and a place for temporary files."""
    (tmp_path / "a.log").write_text(ONE)
    (tmp_path / "b.log").write_text(ONE)
    (tmp_path / "tmp").mkdir()
    return tmp_path


@pytest.mark.sweep
@pytest.mark.parametrize("format", ["text", "json"])
def test_two_logs_of_one_request(folder: Path, format: str) -> None:
    args = ("analyze", folder / "a.log", folder / "none.log", folder / "b.log", "-f", format)
    alone, beside = run(*args), run(*args, "--jobs", "99999999999", TMPDIR=str(folder / "tmp"))
    assert (beside.stdout, beside.stderr, beside.returncode) == (alone.stdout, alone.stderr, alone.returncode)
    assert alone.returncode == 2
    assert os.listdir(folder / "tmp") == []


STOPPED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
from cachedoctor.doctor.analysis import parallel
def stop(terms, folder, unit, work=parallel._work):
    if unit.paths[0].endswith("b.log"):
        {what}
    return work(terms, folder, unit)
stop.__module__, stop.__qualname__ = parallel.__name__, "_work"
parallel._work = stop
import cachedoctor.cli
sys.argv[1:] = ["analyze", "-j", "2", "-f", "json", {logs}]
cachedoctor.cli.main()
"""
WAITS = "print(os.getpid(), file=sys.stderr, flush=True); time.sleep(999)"
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def _script(folder: Path, what: str) -> list[str]:
    logs = ", ".join(repr(str(folder / name)) for name in ("a.log", "b.log"))
    return [PYTHON[0], "-c", STOPPED.format(what=what, logs=logs)]


def _gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # it ended; whoever inherited it has not asked how


@pytest.mark.sweep
@linux
def test_a_process_that_is_killed_is_one_line(folder: Path) -> None:
    env = {**os.environ, "TMPDIR": str(folder / "tmp")}
    command = _script(folder, "os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=env, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "was killed", "--jobs")
    assert os.listdir(folder / "tmp") == []


@pytest.mark.sample(1)
@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupt_ends_all_processes(folder: Path, number: signal.Signals) -> None:
    env = {**os.environ, "TMPDIR": str(folder / "tmp")}
    with subprocess.Popen(
        _script(folder, WAITS), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:  # fmt: skip
        assert process.stderr is not None
        worker = int(process.stderr.readline())
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE)
    wait_for(lambda: _gone(worker), "end of the process")
    assert error == b""
    if number == signal.SIGKILL:
        assert process.returncode == -number
        return
    assert process.returncode == 130
    assert b'"interrupted":true' in out
    assert os.listdir(folder / "tmp") == []
