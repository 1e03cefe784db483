"""A disk that is full, under every command that writes: one line, status 2, and what was there before stays."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from command import LOG, PATIENCE, PYTHON, one_line
from conftest import FIXTURES
from fake_servers import served

from cachedoctor.cli import make_app

BODIES = FIXTURES / "recordings" / "bodies.jsonl"
PROMPTS = sorted((FIXTURES / "prompts" / "timestamp").iterdir())
WRITERS: dict[str, list[object]] = {
    "analyze": ["analyze", "LOG"],
    "analyze a report": ["analyze", "REPORT", "-f", "html"],
    "analyze into rows": ["analyze", "LOG", "-f", "csv"],
    "diff": ["diff", *PROMPTS[:2]],
    "lint": ["lint", BODIES],
    "redact": ["redact", "LOG"],
    "compare": ["compare", "LOG", "LOG"],
    "tune": ["tune", BODIES, "--set", "build=11549"],
    "tune with settings": ["tune", BODIES, "--set", "parallel=2", "--set", "build=11549"],
    "probe": ["probe", "URL", "-q"],
}
"""What writes the answer to ``-o FILE``, or to the standard output."""
PRINTERS = {
    "fix": ["fix", "LOG"],
    "fleet": ["fleet", "LOG", "-f", "json"],
    "explain": ["explain", "CD101"],
    "explain rules": ["explain"],
    "explain settings": ["explain", "settings"],
}
OTHERS = {"watch", "proxy", "exporter", "fleet"}
"""Run on, or write a folder."""
ROOM = 20
"""Bytes that a file may take; every answer is longer."""
UNCOMPILED = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
"""Python puts a file of bytecode that was cut off in the place of a whole one."""


def limited(*args: object, room: int | None = ROOM, stdout: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run it where no file may grow beyond ``room``."""

    def limit() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    with open(stdout or "/dev/null", "wb") as out:
        return subprocess.run(
            [*PYTHON, *map(str, args)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
            timeout=PATIENCE, check=False, preexec_fn=limit, env=UNCOMPILED,
        )  # fmt: skip


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[list[object]], list[object]]:
    """Put real inputs in the place of their names."""
    log, report = tmp_path / "server.log", tmp_path / "report.json"
    log.write_bytes(LOG)

    def fill(args: list[object]) -> list[object]:
        if "REPORT" in args:
            limited("analyze", log, "-f", "json", "-o", report, room=None)
        return [{"LOG": log, "REPORT": report}.get(str(arg), arg) for arg in args]

    return fill


def test_every_command_is_asked() -> None:
    commands = vars(typer.main.get_command(make_app()))["commands"]
    writers = {str(args[0]) for args in WRITERS.values()}
    assert {*writers, *(str(args[0]) for args in PRINTERS.values()), *OTHERS} == commands.keys()
    written = {
        name for name, command in commands.items() if any("--output" in parameter.opts for parameter in command.params)
    }
    assert written - OTHERS == writers


@pytest.mark.sweep
@pytest.mark.parametrize("name", WRITERS)
def test_the_old_answer_stays(name: str, tmp_path: Path, filled: Callable[[list[object]], list[object]]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "answer"
    target.write_text("old")
    with served() as (url, _):
        args = [url if arg == "URL" else arg for arg in filled(WRITERS[name])]
        done = limited(*args, "-o", target)
    assert done.returncode == 2
    one_line(done, "File too large", "free ", f"{target}: cannot be written")
    assert target.read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["answer"]


@pytest.mark.sweep
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full, on Linux")
@pytest.mark.parametrize("name", sorted((WRITERS | PRINTERS).keys() - {"analyze into rows"}))
def test_the_standard_output_is_full(name: str, filled: Callable[[list[object]], list[object]]) -> None:
    with served() as (url, _):
        args = [url if arg == "URL" else arg for arg in filled((WRITERS | PRINTERS)[name])]
        done = limited(*args, room=None, stdout="/dev/full")
    assert done.returncode == 2
    one_line(done, "standard output: cannot be written (No space left on device)")


@pytest.mark.sweep
def test_the_kept_answers_of_a_probe_stay(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("old")
    with served() as (url, _):
        done = limited("probe", url, "-q", "--save", kept)
    assert done.returncode == 2
    one_line(done, f"{kept}: cannot be written (File too large)")
    assert kept.read_text() == "old"


@pytest.mark.sweep
@pytest.mark.parametrize("room", [0, ROOM, 2000, 20_000])
def test_a_fleet_continues_where_there_is_room_again(tmp_path: Path, room: int) -> None:
    logs, out, whole = tmp_path / "logs", tmp_path / "out", tmp_path / "whole"
    logs.mkdir()
    for number in range(3):
        (logs / f"{number}.log").write_bytes(LOG)
    done = limited("fleet", logs, "-o", out, room=room)
    assert done.returncode == 2
    one_line(done, f"{out}: cannot be written (File too large)", "the run then continues")
    for folder in (out, whole):
        assert limited("fleet", logs, "-o", folder, room=None).returncode == 0
    files = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (out, whole)]
    assert files[0] == files[1]


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_live_report_finds_no_room(form: str, tmp_path: Path) -> None:
    """Of a pipe, which ends."""
    target = tmp_path / "live"
    with subprocess.Popen(
        [*PYTHON, "analyze", "-", "-f", form, "-o", str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=UNCOMPILED,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM)),  # noqa: PLW1509
    ) as process:  # fmt: skip
        out, error = process.communicate(LOG, timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert error.startswith(f"cachedoctor: error: {target}: cannot be written (File too large)".encode())
    assert error.count(b"\n") == 1


@pytest.mark.sweep
def test_a_recording_that_finds_no_room(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    import kv_messages as kv
    from test_kv_events import Publisher

    publisher, out = Publisher(), tmp_path / "kv.jsonl"
    for _ in range(50):
        publisher.publish(kv.stored("a"))
    with publisher.answering():
        done = limited("watch", "--kv-events", publisher.endpoint, "--replay", publisher.replay, "-o", out)
    assert done.returncode == 2
    one_line(done, f"{out}: cannot be written (File too large)")
