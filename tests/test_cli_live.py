"""A log that is still written: findings as they turn up, signals, and the report at the end."""

from __future__ import annotations

import array
import contextlib
import fcntl
import io
import json
import os
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import FIRST, LOG, SECOND, THIRD, Started, one_line, run, start

from cachedoctor.cli import live
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.report.base import Appearance

PATIENCE = 120
"""Seconds after which a test gives up. Nothing here measures: it only keeps a test that failed from hanging."""


@contextlib.contextmanager
def started(*args: object, stdin: int = subprocess.PIPE) -> Iterator[Started]:
    """Run ``analyze`` in the background; a test that fails does not leave it behind."""
    with start("analyze", *args, stdin=stdin) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: Started, words: bytes) -> None:
    """Read the output until it holds ``words``."""
    assert process.stdout is not None
    seen, end = b"", time.monotonic() + PATIENCE
    while words not in seen:
        assert select.select([process.stdout], [], [], end - time.monotonic())[0], f"no {words!r}, but: {seen!r}"
        part = os.read(process.stdout.fileno(), 65536)
        assert part, f"ended without {words!r}: {seen!r}"
        seen += part


def write(process: Started, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def feed(process: Started, text: str) -> None:
    """Write, and wait until the process has taken it out of the pipe: what was written before it is analysed then."""
    write(process, text)
    assert process.stdin is not None
    left, end = array.array("i", [1]), time.monotonic() + PATIENCE
    while left[0]:
        assert time.monotonic() < end, f"{left[0]} bytes are still in the pipe"
        time.sleep(0.01)
        fcntl.ioctl(process.stdin, termios.FIONREAD, left)


IDLE = "0.00.841.591 I srv  update_slots: all slots are idle\n"


def test_a_finding_is_printed_while_the_log_is_open_and_ctrl_c_gives_the_report() -> None:
    """``tail -f server.log | cachedoctor analyze -``: with no further line, and the summary on Ctrl-C."""
    with started("-") as process:
        feed(process, FIRST)
        write(process, SECOND)
        read_until(process, b"explain CD101\n")
        assert process.poll() is None
        write(process, THIRD)
        read_until(process, b"explain CD102\n")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"traffic   3 requests, 6,070 prompt tokens, " in out
    assert b"warning[CD101]" in out
    assert b"Interrupted: this covers the part read until then.\n" in out
    assert error == b""


@pytest.mark.sweep
def test_a_steady_stream_is_live_as_well() -> None:
    """Findings do not wait for a silence that never comes."""
    with started("-") as process:
        write(process, FIRST + SECOND)
        assert process.stdout is not None
        end = time.monotonic() + PATIENCE
        while not select.select([process.stdout], [], [], 0.02)[0]:
            assert time.monotonic() < end
            write(process, IDLE)
        read_until(process, b"explain CD101\n")
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_finding_waits_for_silence_or_a_twentieth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours: nothing is printed before one of both, and nothing twice."""
    now, out = [50.0], io.BytesIO()
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sink = SimpleNamespace(writing=lambda: contextlib.nullcontext(out))
    for silent_after in (None, 0.01):
        analyzer = Analyzer()
        printer = live.Live(sink, Appearance(80, False, True, "utf-8"))
        out.seek(0)
        out.truncate()
        analyzer.open("-")
        new = [*analyzer.feed(LOG), *analyzer.idle()]  # so short a log is told from an excerpt by silence, or its end
        assert new == ["CD101"]
        printer.step(new, False, analyzer.findings)
        now[0] += 0.04 if silent_after is None else silent_after
        printer.step([], False, analyzer.findings)
        assert out.getvalue() == b""
        now[0] += 0.02 if silent_after is None else 0
        printer.step([], silent_after is not None, analyzer.findings)
        assert out.getvalue().count(b"warning[CD101]") == 1
        now[0] += 9
        printer.step(["CD101"], True, analyzer.findings)
        assert out.getvalue().count(b"warning[CD101]") == 1


def test_follow_a_growing_file_until_sigterm(log: Path) -> None:
    """``--follow`` reads on; SIGTERM is the same as Ctrl-C."""
    with started("--follow", log, stdin=subprocess.DEVNULL) as process:
        read_until(process, b"explain CD101\n")
        with log.open("a") as file:
            file.write(THIRD)
        read_until(process, b"explain CD102\n")
        process.terminate()
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Interrupted" in out
    assert error == b""


@pytest.mark.parametrize("command", ["analyze", "watch"])
def test_ctrl_c_comes_after_what_was_written_until_then(command: str, log: Path) -> None:
    """Also after the copy of a log that was cut right before, and of which no further line came."""
    given = ["--follow", log] if command == "analyze" else [log]
    with start(command, *given, stdin=subprocess.DEVNULL) as process:
        read_until(process, b"CD101")
        with log.open("a") as file:
            file.write(THIRD)
        shutil.copyfile(log, f"{log}.1")
        os.truncate(log, 0)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (130, b"")
    assert b"warning[CD102]" in out


@pytest.mark.sweep
def test_an_interrupted_json_report_is_whole(tmp_path: Path) -> None:
    """Ctrl-C with ``-o``: the file is there, valid, and says that it was interrupted."""
    target = tmp_path / "report.json"
    with started("-", "-f", "json", "-o", target) as process:
        feed(process, FIRST)
        feed(process, IDLE)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (130, b"", b"")
    report = json.loads(target.read_bytes())
    assert report["interrupted"] is True
    assert report["totals"]["requests"] == 1


@pytest.mark.sweep
def test_follow_a_missing_file(tmp_path: Path) -> None:
    """2 at once, not an endless wait."""
    done = run("analyze", "--follow", tmp_path / "none.log")
    assert done.returncode == 2
    one_line(done, "no such file")
