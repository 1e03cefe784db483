"""Without the extra ``tables``: what needs polars says so in one line, everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import LOG, one_line

from cachedoctor.knowledge.libraries import install

WITHOUT_POLARS = """
import sys
sys.modules["polars"] = None
from cachedoctor.cli import main
sys.argv = ["cachedoctor", *sys.argv[1:]]
main()
"""


def run(*args: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_POLARS, *map(str, args)], capture_output=True, timeout=60, check=False
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


@pytest.mark.sweep
def test_stats_and_parquet_say_how_to_get_it(log: Path, tmp_path: Path) -> None:
    """Before the log is read: it is a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "live.log")
    target = tmp_path / "t.parquet"
    for what, *args in (
        ("parquet", "analyze", tmp_path / "live.log", "-o", target),
        ("parquet", "analyze", log, "--table", "events", "-f", "parquet", "-o", "-"),
        ("fleet", "fleet", tmp_path / "live.log"),
    ):
        done = run(*args)
        assert done.returncode == 2
        one_line(done, f"error: {what} needs polars (hint: {install('tables')})")
        assert done.stdout == b""
    assert not target.exists()


@pytest.mark.sweep
@pytest.mark.parametrize("ending", ["csv", "ndjson"])
@pytest.mark.parametrize("table", ["requests", "events"])
def test_other_tables_need_none(log: Path, table: str, ending: str) -> None:
    done = run("analyze", log, "--table", table, "-f", ending, "-o", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == {"requests": 2, "events": 20}[table] + (ending == "csv")


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["text", "json", "html", "sarif"])
def test_analyze_needs_none(log: Path, form: str) -> None:
    done = run("analyze", log, "-f", form)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"CD101" in done.stdout
