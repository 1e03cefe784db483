"""Sums over many logs are the totals of their reports, whatever the logs come as."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from command import FIRST, LOG, PATIENCE, one_line, run, start, wait_for
from conftest import CASES, ROOT, log_of
from test_frames import request, written

import cachedoctor
from cachedoctor.doctor.compare.tally import Tally
from cachedoctor.doctor.tables.statistics import Gathering
from cachedoctor.model import By, MeasuredRow, Report, RequestRow, Session, Stats, StatsRow, StatsTable, Totals
from cachedoctor.report.base import Appearance
from cachedoctor.report.forms import stats_forms
from cachedoctor.report.tables import table_sums
from cachedoctor.report.tables.columns import REQUESTS
from cachedoctor.report.tables.request_rows import Numbering
from cachedoctor.report.wire.stored import StoredRequests

CANCELLED = str(ROOT / "fixtures/cases/cancelled/server.log")
LOGS = [str(log_of(folder)) for folder in CASES]
BYS: list[By] = [
    "model", "build", "memory", "path", "origin", "client", "endpoint", "hour", "outcome", "slot", "turn",
]  # fmt: skip
VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schemas/stats-v1.schema.json").read_text("utf-8")))


@pytest.mark.sample(1)
@pytest.mark.parametrize("logs", [LOGS[::7], LOGS], ids=["some", "all"])
def test_the_sums_are_those_of_the_reports(logs: list[str]) -> None:
    """Of bundled logs, exactly, in every grouping."""
    totals = [cachedoctor.analyze(log).totals for log in logs]
    gathering = Gathering(logs, None, 1 << 40)
    found = gathering.stats(BYS)
    assert not gathering.errors
    assert [table.by for table in found.tables] == [None, *BYS]
    for table in found.tables:
        for name in ("requests", "prompt_tokens", "cached_tokens", "processed_tokens", "avoidable_tokens"):
            assert sum(getattr(row, name) or 0 for row in table.rows) == sum(getattr(t, name) for t in totals), table.by
        for name in ("prompt_ms", "avoidable_ms"):
            ours = sum(round((getattr(row, name) or 0) * 1e6) for row in table.rows)
            assert ours == pytest.approx(sum((getattr(t, name) or 0) * 1e6 for t in totals), abs=1000 * len(logs))
    assert len(found.tables[0].rows) == 1
    assert found.tables[0].rows[0].requests > 3 * len(logs)


@pytest.mark.sweep
def test_an_input_gives_the_same_as_log_report_and_table(tmp_path: Path) -> None:
    log, report, table = LOGS[1], tmp_path / "report.json", tmp_path / "requests.parquet"
    assert run("analyze", log, "-f", "json", "-o", report).returncode == 0
    assert run("analyze", report, "-o", table).returncode == 0
    rows = [Gathering([str(path)], None, 1 << 40).stats(["outcome"]).tables for path in (log, report, table)]
    assert rows[0] == rows[1] == rows[2]
    mixed = Gathering([str(table), log, str(report)], None, 1 << 40).stats([])
    assert mixed.tables[0].rows[0].requests == 3 * rows[0][0].rows[0].requests
    assert [i.kind for i in mixed.inputs] == ["report", "log", "table"]


def sums(rows: list[RequestRow], by: By | None, folder: Path, session: Session | None = None) -> list[StatsRow]:
    lines = Numbering().lines(rows, [session or Session(0, "a.log")])
    path = written(REQUESTS, lines, folder / "t.parquet", "parquet")
    return table_sums.tables([str(path)], [by])[0].rows


def test_children_and_unknown_requests_are_told_apart(tmp_path: Path) -> None:
    known: dict[str, Any] = {"prompt_tokens": 100, "cached_tokens": 60, "processed_tokens": 40, "prompt_ms": 10.0}
    rows = [request(**known, lost_tokens=5), request(**known, parent=3), request(prompt_tokens=50, avoidable_tokens=0)]
    (row,) = sums(rows, None, tmp_path)
    assert (row.requests, row.unknown_requests) == (2, 1)
    assert (row.prompt_tokens, row.cached_tokens, row.processed_tokens, row.prompt_ms) == (100, 60, 40, 10.0)
    assert row.reuse == 0.6
    assert row.lost_tokens == 5
    assert row.client_lost_tokens is None
    assert row.avoidable_tokens == 0
    assert row.avoidable_ms is None


def test_all_sums_leave_out_the_same(tmp_path: Path) -> None:
    """Children, requests unknown from this log, and what a cancelled one may have computed."""
    known: dict[str, Any] = {"prompt_tokens": 100, "cached_tokens": 60, "processed_tokens": 40, "prompt_ms": 10.0}
    cancelled = request(prompt_tokens=1838, cached_tokens=9, outcome="cancelled")
    rows = [
        request(**known),
        request(**known, parent=3),
        request(prompt_tokens=50),
        request(cached_tokens=5),
        cancelled,
    ]
    (row,) = sums(rows, None, tmp_path)
    lines = [msgspec.json.encode(row) for row in rows]
    tally = Tally(Report("1", [], [], Totals(), StoredRequests(lines), [], [], []))
    ours = (tally.requests, tally.unknown, tally.all.prompt, tally.all.cached, tally.all.processed, tally.all.ms)
    assert ours == (4, 2, 1938, 69, 40, 10.0)
    assert ours == (
        row.requests, row.unknown_requests, row.prompt_tokens, row.cached_tokens, row.processed_tokens, row.prompt_ms,
    )  # fmt: skip
    totals = cachedoctor.analyze(CANCELLED).totals
    tally = Tally(cachedoctor.analyze(CANCELLED))
    assert (tally.requests, tally.all.prompt, tally.all.cached, tally.all.processed) == (
        totals.requests, totals.prompt_tokens, totals.cached_tokens, totals.processed_tokens,
    )  # fmt: skip


def test_what_no_request_tells_is_unknown_and_not_0(tmp_path: Path) -> None:
    (row,) = sums([request()], "model", tmp_path)
    assert row.group is None
    for name in (
        "prompt_tokens",
        "cached_tokens",
        "reuse",
        "prompt_ms",
        "speed_p50",
        "lost_tokens",
        "avoidable_tokens",
    ):
        assert getattr(row, name) is None, name


def test_hours_are_those_of_the_wrapper_in_their_zone(tmp_path: Path) -> None:
    times = [
        "2026-11-20T10:59:59.5Z", "2026-11-20T10:00:00Z", "2026-11-20T11:00:00+02:00", "2026-11-20T09:00:00",
        "--11-20T14:02:01", None,
    ]  # fmt: skip
    rows = sums([request(time=time) for time in times], "hour", tmp_path)
    assert [(row.group, row.requests) for row in rows] == [
        ("--11-20 14:00", 1), ("2026-11-20 09:00", 1), ("2026-11-20 10:00Z", 2),
        ("2026-11-20 11:00+02:00", 1), (None, 1),
    ]  # fmt: skip


def test_builds_are_named_as_in_reports(tmp_path: Path) -> None:
    for session, words in (
        (Session(0, "a", build=6900, build_min=6900), "b6900"),
        (Session(0, "a", build_min=9094, build_max=9293), "b9094 to b9293"),
        (Session(0, "a", build_min=10567), "b10567 or newer"),
        (Session(0, "a"), None),
    ):
        assert sums([request()], "build", tmp_path, session)[0].group == words


def test_quantiles_are_exact_to_half_a_per_cent(tmp_path: Path) -> None:
    chance = random.Random(5)
    times = [chance.lognormvariate(5, 2) for _ in range(2001)]
    rows = [request(prompt_tokens=100, cached_tokens=0, processed_tokens=100, prompt_ms=time) for time in times]
    (row,) = sums(rows, None, tmp_path)
    times.sort()
    assert row.prompt_ms_p50 == pytest.approx(times[1000], rel=0.006)
    assert row.prompt_ms_p90 == pytest.approx(times[1800], rel=0.006)
    assert row.speed_p50 == pytest.approx(100_000 / times[1000], rel=0.006)


def test_tables_in_slices_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [request(slot=n % 3, prompt_tokens=n, cached_tokens=1, prompt_ms=1.0 + n % 7) for n in range(1000)]
    whole = sums(rows, "slot", tmp_path)
    monkeypatch.setattr(table_sums, "_ROWS", 64)
    assert sums(rows, "slot", tmp_path) == whole
    assert [row.group for row in whole] == ["0", "1", "2"]
    assert [row.requests for row in whole] == [334, 333, 333]


def test_rotations_are_one_server_and_other_logs_another(tmp_path: Path) -> None:
    """The conversation continues over the rotation; sums are those of the whole log."""
    lines = LOG.splitlines(keepends=True)
    (tmp_path / "server.log.1").write_bytes(b"".join(lines[:9]))
    (tmp_path / "server.log").write_bytes(b"".join(lines[9:]))
    (tmp_path / "whole.log").write_bytes(LOG)
    parts = Gathering([str(tmp_path / name) for name in ("server.log", "server.log.1")], None, 1 << 30).stats([])
    whole = Gathering([str(tmp_path / "whole.log")], None, 1 << 30).stats([])
    assert parts.tables[0] == whole.tables[0]
    assert len(parts.inputs) == 2


# ---- the command


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two servers with models of hostile names."""
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path, model in zip(paths, ("=cmd|' /C calc'!A0.gguf", "[x](mailto:e) \x1b[31m|.gguf"), strict=True):
        path.write_bytes(LOG.replace(b"hybrid.gguf", model.encode()))
    return paths


@pytest.mark.sweep
def test_text_fits_the_width_and_cuts_no_number(two: list[Path]) -> None:
    done = run("fleet", *two, "--by", "model", COLUMNS="60")
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    assert max(map(len, shown.splitlines())) <= 60
    assert "\x1b" not in shown
    assert "7,870" in shown  # 2 x (1,900 + 2,035) prompt tokens
    assert "Read 2 logs." in shown


def test_a_table_that_80_columns_would_break_is_a_block_per_group(two: list[Path]) -> None:
    """The two requests of each log have 1,900 and 2,035 prompt tokens; nothing was reused."""
    shown = run("fleet", *two, "--by", "model", COLUMNS="80").stdout.decode().split("\n\n")
    assert [block.splitlines()[0][:14] for block in shown] == ["all requests: ", "by model", "Read 2 logs."]
    first, computed, lost, avoidable = shown[0].splitlines()
    assert first == "all requests: 4 requests, 7,870 prompt tokens, 0 % reused"
    assert computed.startswith("  computed   7,870 tokens in ")
    assert " tokens/s, median " in computed
    # The header differs at token 58 of 1,900: what comes before it matched, and hybrid memory could not go back.
    assert lost == "  lost       of the cached tokens, clients changed 3,684, the server lost 116"
    assert avoidable.startswith("  avoidable  3,800 tokens, ")
    groups = [row for row in shown[1].splitlines()[1:] if not row.startswith("  ")]
    assert len(groups) == 2
    assert all(row.endswith(".gguf: 2 requests, 3,935 prompt tokens, 0 % reused") for row in groups)
    wide = run("fleet", *two, "--by", "model", COLUMNS="200").stdout.decode()
    assert wide.splitlines()[0].split()[:4] == ["all", "requests", "requests", "prompt"]


def test_what_no_log_shows_is_in_no_block() -> None:
    row = StatsRow(None, 3, 3, *[None] * 14)
    out = io.BytesIO()
    stats_forms.write("text", Stats("1", [], [StatsTable(None, [row])]), out, Appearance())
    first, *others = out.getvalue().decode().splitlines()
    assert first == "all requests: 3 requests, prompt tokens unknown"
    assert not [line for line in others if line.startswith("  ")]


@pytest.mark.sweep
def test_json_is_what_its_schema_says(two: list[Path], tmp_path: Path) -> None:
    done = run("fleet", *two, tmp_path / "none.log", "--by", "model", "--by", "hour", "-f", "json")
    assert done.returncode == 2
    one_line(done, "none.log: no such file")
    found = json.loads(done.stdout)
    VALIDATOR.validate(found)
    assert [table["by"] for table in found["tables"]] == [None, "model", "hour"]
    assert [i["error"] is None for i in found["inputs"]] == [True, True, False]
    assert found["tables"][2]["rows"][0]["group"] is None
    assert set(found["tables"][0]["rows"][0]) == set(VALIDATOR.schema["$defs"]["StatsRow"]["properties"])


@pytest.mark.sweep
def test_csv_is_not_a_formula_and_markdown_no_markup(two: list[Path]) -> None:
    rows = list(csv.DictReader(io.StringIO(run("fleet", *two, "--by", "model", "-f", "csv").stdout.decode())))
    assert [row["by"] for row in rows] == ["all", "model", "model"]
    assert rows[0]["prompt_tokens"] == "7870"
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row.values())
    shown = run("fleet", *two, "--by", "model", "-f", "markdown").stdout.decode()
    assert "| `[x](mailto:e)` `\\|.gguf` |" in shown
    assert "\x1b" not in shown
    tables = [line for line in shown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in tables}) == 1  # as many cells in every row


@pytest.mark.sweep
def test_default_groups_are_those_that_differ(two: list[Path]) -> None:
    one, both = run("fleet", two[0]), run("fleet", *two)
    assert b"by model" not in one.stdout
    assert b"by model" in both.stdout
    assert b"by build" not in both.stdout


@pytest.mark.sweep
def test_bad_inputs_are_named_and_the_others_counted(tmp_path: Path, log: Path) -> None:
    broken, foreign = tmp_path / "broken.parquet", tmp_path / "foreign.parquet"
    assert run("analyze", log, "-o", broken).returncode == 0
    data = broken.read_bytes()
    broken.write_bytes(data[: len(data) // 2])
    import polars as pl

    pl.DataFrame({"prompt_tokens": ["many"]}).write_parquet(foreign)
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(data[:4] + bytes(255 - b for b in data[4 : len(data) // 3]) + data[len(data) // 3 :])
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "cachedoctor.report/1", "requests": 3}')
    done = run("fleet", broken, foreign, damaged, bad, log)
    assert done.returncode == 2
    errors = done.stderr.decode().splitlines()
    assert len(errors) == 4
    assert all(line.startswith("cachedoctor: error: ") and "(hint: " in line for line in errors)
    assert b"3,935" in done.stdout


@pytest.mark.sweep
def test_numbers_that_no_server_can_have(tmp_path: Path, log: Path) -> None:
    """Sums of 64 bits would wrap: 4 times 2**62 is 0."""
    import polars as pl

    table, one_bad = tmp_path / "t.parquet", tmp_path / "bad.parquet"
    assert run("analyze", log, "-o", table).returncode == 0
    for column, value in (
        ("prompt_tokens", 2**62),
        ("prompt_ms", 1e308),
        ("prompt_ms", float("nan")),
        ("avoidable_ms", -1.0),
    ):
        pl.concat([pl.read_parquet(table)] * 4).with_columns(pl.lit(value).alias(column)).write_parquet(one_bad)
        done = run("fleet", one_bad, log)
        assert done.returncode == 2
        one_line(done, f"column {column} contains an impossible number")
        assert b"3,935" in done.stdout


def test_sums_do_not_wrap(tmp_path: Path) -> None:
    most: dict[str, Any] = {"prompt_tokens": 2**53, "cached_tokens": 2**53, "processed_tokens": 0, "prompt_ms": 1e15}
    (row,) = sums([request(**most)] * 600, None, tmp_path)
    assert row.prompt_tokens == 600 * 2**53
    assert row.prompt_ms == pytest.approx(6e17)


@pytest.mark.sweep
def test_names_that_are_not_utf_8(tmp_path: Path, log: Path) -> None:
    """A table is refused in one line, as polars cannot open it; reports are read or refused like others."""
    table, bad, good = (os.fsencode(tmp_path) + name for name in (b"/t\xff.parquet", b"/bad\xff.json", b"/r\xff.json"))
    assert run("analyze", log, "-f", "parquet", "-o", table).returncode == 0
    assert run("analyze", log, "-f", "json", "-o", good).returncode == 0
    with open(bad, "w") as file:
        file.write('{"schema": "cachedoctor.report/1"}')
    for path, words in ((table, "UTF-8"), (bad, "is not a JSON report written by cachedoctor")):
        done = run("fleet", path, log, "-f", "json")
        assert done.returncode == 2
        one_line(done, words)
        found = json.loads(done.stdout)
        assert sorted(i["error"] is None for i in found["inputs"]) == [False, True]
    done = run("fleet", good, log, "-f", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["inputs"][0]["path"].endswith("r\\udcff.json")


@pytest.mark.sweep
def test_nothing_recognised_and_output_that_is_an_input(tmp_path: Path, log: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("nothing of a server\n")
    assert run("fleet", other, "-o", tmp_path / "out.txt").returncode == 3
    assert not (tmp_path / "out.txt").exists()
    assert run("fleet", log, "-o", log).returncode == 2
    assert log.read_bytes() == LOG


@pytest.mark.sweep
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    """No output, no temporary folder."""
    os.mkfifo(tmp_path / "live.log")
    target, temporary = tmp_path / "out.txt", tmp_path / "tmp"
    temporary.mkdir()
    command, env = ["fleet", tmp_path / "live.log", "-o", target], {**os.environ, "TMPDIR": str(temporary)}
    with start(*command, stdin=None, stdout=None, env=env) as process, (tmp_path / "live.log").open("w") as pipe:
        pipe.write(FIRST)
        pipe.flush()
        wait_for(lambda: any(temporary.iterdir()), "temporary folder")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert not target.exists()
    assert list(temporary.iterdir()) == []


def test_servers_without_requests_that_80_columns_would_break_have_a_sentence_each() -> None:
    rows = [
        MeasuredRow("model", "tiny", "batch", 1, 1, 4000, 1000, 0.25, None, None),
        MeasuredRow("model", None, "interval", 12, 96, 1_625_295, 329_935, 0.203, 0.113, 0.319),
    ]
    stats = Stats("1", [], [StatsTable(None, [])], rows)
    shown = {}
    for width in (80, 120):
        out = io.BytesIO()
        stats_forms.write("text", stats, out, Appearance(width))
        shown[width] = out.getvalue().decode().splitlines()
    assert shown[80][:4] == [
        "servers without requests",
        "tiny: 25.0 % reused of 4,000 prompt tokens, from 1 prefill batch of 1 server",
        "unknown: 20.3 % reused (95 % interval: 11.3 % to 31.9 %) of 1,625,295 prompt",
        "             tokens, from 96 intervals of 12 servers",
    ]
    assert shown[120][0].split()[:4] == ["servers", "without", "requests", "servers"]
