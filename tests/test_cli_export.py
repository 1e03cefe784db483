"""Tables of ``analyze``: what is refused before a log is read, what an output keeps, and what a report gives."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import termios
from pathlib import Path

import polars as pl
import pytest
from command import FIRST, LOG, PATIENCE, one_line, run, start, wait_for


def test_an_unknown_ending_is_refused_before_a_log_is_read(tmp_path: Path) -> None:
    """The log is a pipe that nobody writes to: who opened it would wait for ever."""
    os.mkfifo(tmp_path / "live.log")
    for target in (tmp_path / "requests.xlsx", "-"):
        done = run("analyze", tmp_path / "live.log", "--table", "requests", "-o", target)
        assert done.returncode == 2
        one_line(done, "--table: the output format is not a table format", ".csv, .parquet or .ndjson")


@pytest.mark.sweep
@pytest.mark.parametrize("table", ["requests", "events"])
def test_the_standard_output_takes_every_format(log: Path, tmp_path: Path, table: str) -> None:
    for ending in ("csv", "ndjson", "parquet"):
        path = tmp_path / f"t.{ending}"
        assert run("analyze", log, "--table", table, "-o", path).returncode == 0
        done = run("analyze", log, "--table", table, "-f", ending, "-o", "-")
        assert done.returncode == 0
        assert done.stdout == path.read_bytes()


@pytest.mark.sweep
@pytest.mark.parametrize("table", ["requests", "events"])
def test_an_old_table_stays_unless_the_new_one_is_whole(tmp_path: Path, table: str) -> None:
    target, other = tmp_path / "t.parquet", tmp_path / "other.txt"
    target.write_text("old")
    other.write_text("nothing of a server\n")
    done = run("analyze", other, "--table", table, "-o", target)
    assert done.returncode == 3
    one_line(done, "the input does not look like a log")
    done = run("analyze", tmp_path / "none.log", "--table", table, "-o", target)
    assert done.returncode == 2
    one_line(done, "no such file")
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.txt", "t.parquet"]


@pytest.mark.sweep
@pytest.mark.parametrize("table", ["requests", "events"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "ndjson"])
def test_a_full_disk_is_one_line(log: Path, table: str, ending: str) -> None:
    done = run("analyze", log, "--table", table, "-f", ending, "-o", "/dev/full")
    assert done.returncode == 2
    one_line(done, "/dev/full: cannot be written", "No space left")


@pytest.mark.sweep
def test_an_input_is_never_written_over(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(log)
    for path in (log, link):
        done = run("analyze", log, "-f", "csv", "-o", path)
        assert done.returncode == 2
        one_line(done, "is an input")
    assert log.read_bytes() == LOG


@pytest.mark.sweep
@pytest.mark.parametrize("table", ["requests", "events"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_the_old_table(tmp_path: Path, table: str, number: signal.Signals) -> None:
    """While the log is read, and for lines while polars already writes."""
    os.mkfifo(tmp_path / "live.log")
    target = tmp_path / "t.parquet"
    target.write_text("old")
    command = ["analyze", tmp_path / "live.log", "--table", table, "-o", target]
    with (
        start(*command, stdin=None, stdout=None, stderr=subprocess.DEVNULL) as process,
        (tmp_path / "live.log").open("w") as pipe,
    ):
        pipe.write(FIRST)
        pipe.flush()
        waiting = array.array("i", [1])
        wait_for(lambda: fcntl.ioctl(pipe, termios.FIONREAD, waiting) or not waiting[0], "look at the log")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 130
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.log", "t.parquet"]


@pytest.mark.sweep
def test_a_report_gives_the_requests_of_its_log(log: Path, tmp_path: Path) -> None:
    """Known by its content, not by its name; indented, too."""
    stored = tmp_path / "report.log"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    of_log = run("analyze", log, "-f", "ndjson", "-o", "-").stdout
    assert run("analyze", stored, "-f", "ndjson", "-o", "-").stdout == of_log
    stored.write_text(json.dumps(json.loads(stored.read_text()), indent=2))
    assert run("analyze", stored, "-f", "ndjson", "-o", "-").stdout == of_log
    done = run("analyze", stored, "--table", "events", "-o", tmp_path / "t.csv")
    assert done.returncode == 2
    one_line(done, "does not contain the lines of its log", "--table events")


def test_reports_and_logs_make_one_table(log: Path, tmp_path: Path) -> None:
    stored, target = tmp_path / "report.json", tmp_path / "t.parquet"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    assert run("analyze", stored, log, "-o", target).returncode == 0
    found = pl.read_parquet(target)
    assert found["index"].to_list() == [0, 1, 2, 3]
    assert found["session"].to_list() == [0, 0, 1, 1]
    assert found["prompt_tokens"].to_list() == [1900, 2035, 1900, 2035]


@pytest.mark.sweep
def test_a_bad_report_does_not_hide_the_others(log: Path, tmp_path: Path) -> None:
    bad, target = tmp_path / "bad.json", tmp_path / "t.csv"
    bad.write_text('{"schema": "cachedoctor.report/9"}')
    done = run("analyze", bad, log, "-o", target)
    assert done.returncode == 2
    one_line(done, "another schema")
    assert len(target.read_text().splitlines()) == 3


@pytest.mark.sweep
def test_a_log_of_json_records_is_not_a_report(tmp_path: Path) -> None:
    path = tmp_path / "docker.log"
    path.write_text("".join(json.dumps({"log": line, "stream": "stderr"}) + "\n" for line in FIRST.splitlines(True)))
    done = run("analyze", path, "-f", "ndjson", "-o", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["prompt_tokens"] == 1900
