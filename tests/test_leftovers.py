"""What is left of a run that was killed, or whose reader went away: nothing, after the next run at the latest."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from command import FIRST, LOG, SECOND, one_line, run, start, wait_for
from test_cli_faults import MANY, PATIENCE

from cachedoctor.cli import new_file
from cachedoctor.cli.sink import Sink
from cachedoctor.doctor import scratch

pytestmark = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name, and locks")
STALE = ".cachedoctor-0123abcd.tmp"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def folders(room: Path) -> list[Path]:
    return list(room.glob("cachedoctor-run-*"))


def left(room: Path) -> set[str]:
    """Names in the folder of temporary files, without those by which Python's ``tempfile`` tries whether it can write.

    A run can be killed between the making and the removal of that file.
    """
    return {name for name in names(room) if not re.fullmatch("[a-z0-9_]{8}", name)}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


# ---- killed


@pytest.mark.sweep
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_killed_run_leaves_nothing_beside_its_output(old: bytes | None, tmp_path: Path, room: Path) -> None:
    """At any moment: the output is the old one or the whole new one."""
    log, folder, chance = tmp_path / "server.log", tmp_path / "out", random.Random(7)
    log.write_text(MANY)
    folder.mkdir()
    target = folder / "report.html"
    assert run("analyze", log, "-f", "html", "-o", target).returncode == 0
    whole, longest = target.read_bytes(), 0.6
    for _ in range(12):
        target.unlink(missing_ok=True)
        if old is not None:
            target.write_bytes(old)
        with start("analyze", log, "-f", "html", "-o", target, stdin=subprocess.DEVNULL) as process:
            time.sleep(chance.uniform(0, longest))
            process.kill()
            process.communicate(timeout=PATIENCE)
        assert names(folder) <= {target.name}
        assert not target.exists() if old is None and process.returncode else target.read_bytes() in (old, whole)
        assert left(room) == set()


def test_the_next_run_removes_what_a_killed_one_left_in_the_temporary_folder(tmp_path: Path, room: Path) -> None:
    logs = [tmp_path / f"{name}.log" for name in "abc"]
    for log in logs:
        log.write_text(MANY)
    count = 0
    for run_of in range(3):
        with start("analyze", *logs, "-j", "2", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            wait_for(lambda: folders(room) or process.poll() is not None, "temporary folder")
            time.sleep(run_of * 0.02)
            process.kill()
            process.communicate(timeout=PATIENCE)
        count += len(folders(room))
        wait_for(lambda: (scratch.clear_folders(), not folders(room))[1], "end of its other processes")
    assert count  # there was something to remove


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_any_analysis_removes_what_is_left(jobs: str, log: Path, room: Path) -> None:
    (room / "cachedoctor-run-abc_1234").mkdir()
    (room / "cachedoctor-run-abc_1234" / "part").write_bytes(b"x")
    assert run("analyze", log, log, "-j", jobs).returncode == 0
    assert names(room) == set()


def test_what_is_in_use_or_not_ours_stays(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a run that lives, other names, links, files where a folder is meant."""
    elsewhere = room / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (room / "cachedoctor-run-aaaaaaaa").symlink_to(elsewhere)
    (room / "cachedoctor-run-bbbbbbbb").touch()
    for other in ("cachedoctor-run-short", "cachedoctor-other", "run-aaaaaaaa"):
        (room / other).mkdir()
    kept = names(room)
    (room / "cachedoctor-run-cccccccc").mkdir()
    with scratch.scratch_folder() as ours:
        scratch.clear_folders()
        assert names(room) == kept | {Path(ours).name}
    assert names(room) == kept
    assert names(elsewhere) == {"kept"}
    (room / "cachedoctor-run-dddddddd").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # all of it is somebody else's
    scratch.clear_folders()
    assert names(room) == kept | {"cachedoctor-run-dddddddd"}


# ---- where a new file needs a name


@pytest.fixture(params=["without a name", "with a name", "linked nowhere"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a new file comes to its place."""
    if request.param == "with a name":
        monkeypatch.setattr(new_file, "_UNNAMED", None)
    if request.param == "linked nowhere":  # there is no /proc

        def refuse(*_: object, **__: object) -> None:
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_new_file_is_whole_or_not_there(kind: str, old: bytes | None, tmp_path: Path) -> None:
    target = tmp_path / "report"
    if old is not None:
        target.write_bytes(old)
        target.chmod(0o640)
    before = names(tmp_path)
    with contextlib.suppress(ZeroDivisionError), Sink(str(target)) as sink, sink.writing() as out:
        out.write(b"half")
        out.flush()
        assert len(names(tmp_path)) == len(before) + (kind == "with a name")
        raise ZeroDivisionError
    assert names(tmp_path) == before
    with Sink(str(target)):
        pass  # nothing was written
    assert names(tmp_path) == before
    with Sink(str(target)) as sink, sink.writing() as out:
        out.write(b"new")
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == {"report"}
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == (0o666 & ~umask if old is None else 0o640)


def test_the_next_file_removes_what_is_left_beside_it(kind: str, tmp_path: Path) -> None:
    """Unless it is in use, or of another kind."""
    target, stale = tmp_path / "report", tmp_path / STALE
    stale.write_bytes(b"half")
    (tmp_path / STALE.replace("0", "1")).symlink_to(target)
    (tmp_path / STALE.replace("0", "2")).mkdir()
    (tmp_path / f"x{STALE}").touch()
    kept = names(tmp_path) - {STALE}
    with stale.open("rb") as used:
        assert scratch.lock(used.fileno())
        with Sink(str(target)) as sink, sink.writing() as out:
            out.write(b"1")
        assert names(tmp_path) == kept | {STALE, "report"}
    with Sink(str(target)) as sink, sink.writing() as out:
        out.write(b"2")
    assert names(tmp_path) == kept | {"report"}
    assert target.read_bytes() == b"2"


# ---- readers that go away

PROMPTS = ("a b " * 3000, "a c " * 3000)
COMMANDS: list[list[str]] = [
    *(["analyze", "server.log", "-f", form] for form in ("text", "json", "jsonl", "html", "concise")),
    ["analyze", "server.log", "none.log"], ["analyze", "server.log", "other.log", "-j", "2"],
    ["analyze", "report.json"], ["diff", "a.txt", "b.txt"], ["diff", "a.txt", "b.txt", "--full", "-f", "json"],
    ["redact", "server.log"], ["explain", "CD101"], ["explain"], ["explain", "settings"],
    ["compare", "report.json", "report.json"],
    ["analyze", "server.log", "-o", "-", "-f", "csv"], ["fleet", "server.log"], ["--help"], ["watch", "-"],
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Inputs of all commands."""
    for name in ("server.log", "other.log"):
        (tmp_path / name).write_bytes(LOG)
    for name, text in zip("ab", PROMPTS, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    assert run("analyze", "server.log", "-f", "json", "-o", "report.json", folder=str(tmp_path)).returncode == 0
    return tmp_path


@pytest.mark.sweep
def test_a_closed_pipe_ends_every_command_without_a_word(files: Path) -> None:
    assert {command[0] for command in COMMANDS} >= {"analyze", "diff", "redact", "explain", "compare", "fleet", "watch"}
    before, ended = names(files), {}
    for command in COMMANDS:
        reading, writing = os.pipe()
        os.close(reading)
        with start(*command, stdout=writing, folder=str(files)) as process:
            os.close(writing)
            _, error = process.communicate(FIRST.encode() + SECOND.encode(), timeout=PATIENCE)
        ended[" ".join(command)] = (process.returncode, error.replace(b"none.log", b""))
    silent: dict[str, Any] = dict.fromkeys(ended, (-signal.SIGPIPE, b""))
    assert ended == silent
    assert names(files) == before


@pytest.mark.sweep
@pytest.mark.parametrize("command", [["diff", "-", "a.txt"], ["analyze", "-"], ["compare", "-", "report.json"]])
def test_a_closed_standard_input_is_one_line(command: list[str], files: Path) -> None:
    done = run(*command, shell="<&-", folder=str(files))
    assert done.returncode == 2
    one_line(done, "-: ", "standard input is closed")
