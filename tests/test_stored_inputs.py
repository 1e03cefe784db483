"""JSON reports as inputs: known by their content in every command, each counted once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import LOG, one_line, run

from cachedoctor.doctor.compare import reports
from cachedoctor.doctor.tables.statistics import Gathering


@pytest.fixture
def stored(log: Path, tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    assert run("analyze", log, "-f", "json", "-o", path).returncode == 0
    return path


@pytest.mark.sweep
def test_the_order_of_keys_does_not_matter(stored: Path, tmp_path: Path) -> None:
    """As jq -S and jq -cS write them, with more before the schema than is read at once."""
    data = json.loads(stored.read_text())
    data["aaa"] = "x" * 3_000_000
    for indent in (2, None):
        path = tmp_path / "sorted.json"
        path.write_text(json.dumps(data, sort_keys=True, indent=indent) + "\n")
        assert reports.is_report(str(path))
        for args in (["analyze", path], ["compare", path, stored], ["fleet", path]):
            assert run(*args).returncode == 0
        assert run("analyze", path, "-f", "csv", "-o", "-").stdout.count(b"\n") == 3


def test_the_schema_between_two_reads(tmp_path: Path) -> None:
    for at in range(1 << 16, (1 << 16) + 60, 7):
        path = tmp_path / "report.json"
        path.write_text('{\n"a": "' + "x" * (at - 50) + '", "schema": "cachedoctor.report/1"}')
        assert reports.is_report(str(path))


def test_a_log_of_json_records_is_none(tmp_path: Path) -> None:
    """Not even one in which somebody printed a report."""
    path = tmp_path / "docker.log"
    line = json.dumps({"log": '{"schema":"cachedoctor.report/1"}', "stream": "stderr"})
    for text in (line + "\n" + line, line, "{}\n", "", "{", "[1]"):
        path.write_text(text)
        assert not reports.is_report(str(path)), text


@pytest.mark.sweep
def test_a_report_is_given_to_analyze_alone(stored: Path, log: Path) -> None:
    done = run("analyze", log, stored)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "a JSON report must be the only input", f"cachedoctor analyze {stored}")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "words", [("--build", "7000"), ("--unknown",), ("--select", "CD1"), ("--fail-on", "note"), ("-j", "2")]
)
def test_options_that_read_a_log_do_not_go_with_a_report(stored: Path, words: tuple[str, ...]) -> None:
    for done in (run("analyze", stored, *words), run("analyze", "-", *words, stdin=stored.read_bytes())):
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, "cannot be combined with a JSON report")


@pytest.mark.sweep
@pytest.mark.parametrize("command", [["fleet", "-"], ["compare", "-", "-"], ["analyze", "-", "-f", "csv"]])
def test_a_report_from_a_pipe_is_refused_with_a_hint(stored: Path, command: list[str]) -> None:
    done = run(*command, stdin=stored.read_bytes())
    assert (done.returncode, done.stdout) == (3, b"")
    one_line(done, "look like", "a JSON report", "file")


def test_report_reads_a_pipe(stored: Path) -> None:
    done = run("analyze", "-", stdin=stored.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == run("analyze", stored).stdout


@pytest.mark.sweep
def test_an_input_given_twice_counts_once(stored: Path, log: Path, tmp_path: Path) -> None:
    """By whatever name; logs, reports and tables alike."""
    table, link = tmp_path / "t.parquet", tmp_path / "link.json"
    assert run("analyze", stored, "-o", table).returncode == 0
    os.symlink(stored, link)
    for paths in ([stored, stored], [stored, link], [table, f"{tmp_path}/./t.parquet"], [log, log]):
        found = Gathering([str(path) for path in paths], None, 1 << 30).stats([])
        assert found.tables[0].rows[0].requests == 2
        assert [i.path for i in found.inputs] == [str(paths[0])]
    assert run("analyze", stored, link, "-f", "csv", "-o", "-").stdout.count(b"\n") == 3


def test_a_group_asked_for_twice_is_shown_once(log: Path) -> None:
    found = Gathering([str(log)], None, 1 << 30).stats(["model", "slot", "model"])
    assert [table.by for table in found.tables] == [None, "model", "slot"]


@pytest.mark.sweep
def test_a_log_without_requests_has_a_row_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "start.log"
    path.write_bytes(LOG[: LOG.index(b"0.00.153.756")])
    done = run("fleet", path, "-f", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    (row,) = json.loads(done.stdout)["tables"][0]["rows"]
    assert (row["requests"], row["unknown_requests"], row["prompt_tokens"], row["reuse"]) == (0, 0, None, None)
    assert "all" in run("fleet", path).stdout.decode()


@pytest.mark.sweep
def test_events_of_something_else_write_nothing(tmp_path: Path) -> None:
    """No header either."""
    path = tmp_path / "other.txt"
    path.write_text("nothing of a server\n")
    done = run("analyze", path, "--table", "events", "-f", "csv", "-o", "-")
    assert (done.returncode, done.stdout) == (3, b"")
    one_line(done, "nothing was written")
