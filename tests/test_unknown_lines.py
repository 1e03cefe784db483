"""``analyze --unknown``: lines that are not known message, counted by shape, and nothing that a user wrote in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run

KNOWN = (
    "0.01.{:03}.000 I slot update_slots: id  0 | task {} | "
    "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 9\n"
)
STRANGE = "0.02.000.{:03} I srv  update_slots: a line of tomorrow, key = sk-proj-{}\n"
SECRET = "Dear diary, \x1b[31mthe password is hunter2\n"


def written(tmp_path: Path) -> Path:
    log = tmp_path / "server.log"
    rows = [KNOWN.format(at, at) + STRANGE.format(at, f"{at:03}" * 12) for at in range(3)]
    log.write_text("".join(rows) + SECRET)
    return log


def test_shapes_are_counted_and_hold_nothing_of_a_user(tmp_path: Path) -> None:
    log = written(tmp_path)
    found = json.loads(run("analyze", str(log), "--unknown", "-f", "json").stdout)
    assert [(one["shape"], one["count"], one["line"]) for one in found["unknown"]] == [
        ("N I srv update_slots: <line>", 3, 2),
        ("<line>", 1, 7),
    ]
    assert {one["path"] for one in found["unknown"]} == {str(log)}
    text = run("analyze", str(log), "--unknown").stdout.decode()
    assert (
        "\n4 of 7 lines are not recognised, grouped by pattern (N: a number):\n"
        "        3  N I srv update_slots: <line>  (first: line 2)\n"
        "        1  <line>  (first: line 7)\n\n"
    ) in text
    for secret in ("tomorrow", "sk-proj", "hunter2", "diary", "\x1b"):
        assert secret not in text.split("not recognised")[1]


def test_a_report_has_none_unless_it_was_asked_for(tmp_path: Path) -> None:
    assert "unknown" not in json.loads(run("analyze", str(written(tmp_path)), "-f", "json").stdout)


def test_two_inputs_are_told_apart_and_a_report_keeps_the_list(tmp_path: Path) -> None:
    first, other, report = written(tmp_path), tmp_path / "other.log", tmp_path / "report.json"
    other.write_text(KNOWN.format(1, 1) + SECRET)
    assert f"(first: {first}:7)" in run("analyze", str(first), str(other), "--unknown", "--jobs", "2").stdout.decode()
    run("analyze", str(first), str(other), "--unknown", "-o", str(report))
    again = json.loads(run("analyze", str(report), "-f", "json").stdout)
    assert again["unknown"] == json.loads(report.read_text())["unknown"]
    assert f"(first: {first}:7)" in run("analyze", str(report)).stdout.decode()


def test_a_shape_of_a_stored_report_is_shown_harmless(tmp_path: Path) -> None:
    """Anybody may have written the report."""
    report = tmp_path / "report.json"
    run("analyze", str(written(tmp_path)), "--unknown", "-o", str(report))
    report.write_text(report.read_text().replace('"shape":"<line>"', '"shape":"<line>\\u001b[31m"'))
    text = run("analyze", str(report)).stdout.decode()
    assert "<line>" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("format", ["html", "jsonl", "sarif"])
def test_a_format_that_does_not_show_it_is_refused(tmp_path: Path, format: str) -> None:
    done = run("analyze", str(written(tmp_path)), "--unknown", "-f", format, "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "--unknown: is not available with" in done.stderr.decode()
