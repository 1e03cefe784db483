"""The measurements themselves: that they run, and that their logs are what they say. Asserts no seconds and no MB."""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, report_of

sys.path.insert(0, str(ROOT / "benchmarks"))
import access_log
import gen_log
import linear
import memory
import peers
import performance
import plan
import process
import shapes
import table
import throughput

USAGE = process.Usage(seconds=2.0, cpu=1.0, peak=9999.0)


def planned(folder: Path, **changed: object) -> plan.Plan:
    return plan.Plan(20_000, ["b11549-default"], 1, True, folder)._replace(**changed)


def launches(text: str) -> int:
    return text.count("| processing task")


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Nothing is run; gives the command lines that would have been."""
    asked: list[list[str]] = []

    def record(command: list[str], *_: object) -> process.Usage:
        asked.append(command)
        return USAGE

    for module in (throughput, memory, linear):
        monkeypatch.setattr(module, "measure", record)
    monkeypatch.setattr(memory, "measure_piped", lambda _, command: record(command))
    return asked


# ---- the logs


def test_a_log_of_one_life_has_the_bytes_that_it_always_had() -> None:
    """Measurements of different days are compared: this sum is of the generator as it was before it knew lives."""
    made = "".join(gen_log.blocks("b11549-default", 300_000)).encode()
    assert hashlib.sha256(made).hexdigest() == "54b377fa1263dbd6c4a6e120c4f035b237f314da6769ab39d0b2c8a8b0449ac0"


@pytest.mark.sample(1)
@pytest.mark.parametrize("era", gen_log.ERAS)
def test_every_life_of_a_log_is_a_session(era: str) -> None:
    made = "".join(gen_log.blocks(era, 60_000, lives=3))
    report = report_of(made)
    assert len(report["sessions"]) == 3
    assert len(report["requests"]) == launches(made)


@pytest.mark.parametrize(("slots", "checkpoints"), [(1, 8), (4, 1), (3, 40)])
def test_a_shape_has_its_slots_and_checkpoints(slots: int, checkpoints: int) -> None:
    made = "".join(shapes.blocks(60_000, slots=slots, checkpoints=checkpoints))
    report = report_of(made)
    assert {r["slot"] for r in report["requests"]} == set(range(slots))
    assert made.count("created context checkpoint") == launches(made) * checkpoints
    timed = re.findall(r"task (\d+) \| prompt eval time = +[\d.]+ ms / +(\d+) tokens", made)
    assert [(str(r["task"]), str(r["processed_tokens"])) for r in report["requests"]] == timed
    assert any(r["cached_tokens"] for r in report["requests"])


def test_every_line_of_the_access_log_is_in_the_combined_format() -> None:
    combined = re.compile(
        r'\S+ - - \[\d\d/\w{3}/\d{4}(:\d\d){3} \+0000\] "GET \S+ HTTP/1\.1" \d{3} \d+ "[^"]+" "[^"]+"'
    )
    lines = "".join(access_log.blocks(1000)).splitlines()
    assert [line for line in lines if not combined.fullmatch(line)] == []


@pytest.mark.sweep
def test_perline_counts_what_the_report_counts(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(gen_log.life("b11549-trace", 50_000, 4, 1, flush=1)))
    command = peers.OF_LOGS[2].command(log, tmp_path)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    totals = report_of(log.read_bytes())["totals"]
    assert f"'launch': {totals['requests']}," in said
    assert f" {totals['processed_tokens']} tokens computed" in said


# ---- the table


@pytest.mark.sweep
def test_the_start_up_is_measured_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert performance.main(["startup", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "cachedoctor --version" in line and "times python -c pass" in line]
    assert sum("start-up" in line for line in lines) == 4


@pytest.mark.sweep
def test_the_start_up_of_another_checkout_is_printed_as_a_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert performance.main(["startup", "--quick", "--against", str(ROOT)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "of the CPU time there" in line]
    assert len(lines) == 4
    assert all(f"s of CPU at {ROOT.name}" in line for line in lines)


def test_a_cell_of_the_markdown_table_may_hold_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(performance, "rows", lambda *_: iter([table.Row("live", "a | b", USAGE)]))
    assert performance.main(["live", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()[:3]
    assert [len(re.split(r"(?<!\\)\|", line)) for line in lines] == [len(table.COLUMNS) + 2] * 3
    assert r"| a \| b | 2.00 | 1.00 | 9999 |" in lines[2]


def test_throughput_has_a_row_for_every_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unmeasured: list[list[str]]
) -> None:
    monkeypatch.setattr(peers.shutil, "which", lambda program: None if program == "lnav" else program)
    rows = list(throughput.rows(planned(tmp_path)))
    by_case = {row.case.partition(": ")[2]: row for row in rows}
    assert by_case["lnav, an access log indexed"].measured == peers.INSTALL
    assert {command[0] for command in unmeasured} >= {"mawk", "rg", "goaccess", sys.executable}
    assert by_case["mawk, 4 patterns counted"].ratio == 1
    assert by_case["2 files, --jobs 2"].ratio == 1
    assert [c[c.index("--jobs") + 1] for c in unmeasured if any("lives" in word for word in c)] == ["1", "2"]
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_fails_is_named_and_the_rest_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(command: list[str], *_: object) -> process.Usage:
        if command[0] == "mawk":
            raise process.FailedError("mawk: exit status 2: no such option")
        return USAGE

    monkeypatch.setattr(throughput, "measure", measure)
    monkeypatch.setattr(peers.shutil, "which", lambda program: program)
    rows = list(throughput.rows(planned(tmp_path)))
    assert [row.measured for row in rows if "exit status" in row.measured] == ["mawk: exit status 2: no such option"]
    assert "--jobs 2" in rows[-1].case


@pytest.mark.usefixtures("unmeasured")
def test_memory_leaves_the_pipe_out_when_in_a_hurry(tmp_path: Path) -> None:
    rows = [list(memory.rows(planned(tmp_path, is_quick=quick))) for quick in (True, False)]
    assert [len(found) for found in rows] == [4, 6]
    assert [row.case.split()[0] for row in rows[1]] == ["file"] * 4 + ["pipe"] * 2


@pytest.mark.usefixtures("unmeasured")
def test_every_axis_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "AXES", [axis._replace(values=axis.values[:2]) for axis in linear.AXES])
    assert len(list(linear.rows(planned(tmp_path)))) == 4 + 2 * len(linear.AXES)
    assert list(tmp_path.iterdir()) == []


def test_exponents() -> None:
    assert linear.exponent(1, 3.0, 2, 6.0) == pytest.approx(1)
    assert linear.exponent(1, 3.0, 4, 48.0) == pytest.approx(2)
    assert linear.exponent(10, 3.0, 100, 3.0) == 0
    assert linear.exponent(1, math.nan, 2, 6.0) is None
    assert linear.exponent(2, 1.0, 2, 1.0) is None


def test_a_ratio_above_its_limit_is_marked() -> None:
    steep, flat = (table.Row("linear", "x", USAGE, "", ratio, "", 1.2) for ratio in (1.21, 1.2))
    assert (steep.is_marked, flat.is_marked) == (True, False)
    assert steep.cells()[6] == "1.21!"
    assert flat.cells()[6] == "1.20"


def test_marked_rows_are_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    steep = table.Row("linear", "x", USAGE, "", 2.0, "", 1.2)
    monkeypatch.setattr(performance, "rows", lambda *_: iter([steep]))
    assert performance.main(["linear"]) == 1
    assert "1 above their limit" in capsys.readouterr().err


@pytest.mark.parametrize("part", performance.PARTS)
def test_every_part_has_rows(part: str) -> None:
    assert callable(performance.importlib.import_module(part).rows)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["nothing"], "no such part"),
        (["--size", "x"], "200M"),
        (["--size", "0"], "begin at 1"),
        (["--rounds", "0"], "1"),
    ],
)
def test_wrong_arguments_end_in_one_line(given: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        performance.arguments(given)
    assert end.value.code == 2
    assert word in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.sweep
def test_a_failing_program_is_told_with_its_words() -> None:
    with pytest.raises(process.FailedError, match="exit status 3: gone"):
        process.measure([sys.executable, "-c", "import sys; print('gone', file=sys.stderr); sys.exit(3)"], 1)


@pytest.mark.sweep
def test_what_is_piped_is_read_to_its_end(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    read = f"import json, sys; json.dump(len(sys.stdin.read()), open({str(seen)!r}, 'w'))"
    process.measure_piped([sys.executable, "-c", "print('x' * 999_999)"], [sys.executable, "-c", read])
    assert json.loads(seen.read_text()) == 1_000_000
