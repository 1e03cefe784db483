"""Tables read back as documented, in polars and in duckdb; every row is what the report has."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from conftest import CASES, ROOT, log_of, report_of
from measured_reports import GivenRows, prefills, report, samples, sglang, vllm

import cachedoctor
from cachedoctor.doctor.tables.tables import EventRows, measured_rows, request_rows
from cachedoctor.model import CheckpointRow, RequestRow, Session
from cachedoctor.report.tables import table_writer
from cachedoctor.report.tables.columns import (
    BATCHES,
    ENDINGS,
    EVENTS,
    FLEET,
    REQUESTS,
    SAMPLES,
    TABLES,
    ColumnTable,
    Ending,
)
from cachedoctor.report.tables.request_rows import Numbering

PAGE = (ROOT / "docs" / "tables.md").read_text("utf-8")
LOGS = [log_of(folder) for folder in CASES]
IN_POLARS = {
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "text": pl.String(),
    "flag": pl.Boolean(),
    "names": pl.List(pl.String()),
    "spans": pl.List(pl.Struct({"pos_min": pl.Int64(), "pos_max": pl.Int64()})),
}
IN_DUCKDB = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "flag": "BOOLEAN",
    "names": "VARCHAR[]",
    "spans": "STRUCT(pos_min BIGINT, pos_max BIGINT)[]",
}


def page_rows(heading: str) -> list[list[str]]:
    """Name, kind, unit and words of the columns in the table under a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\| `.*$", section, re.M)]
    return [[row[0].strip("` "), *row[1:]] for row in rows]


def documented(table: ColumnTable) -> list[list[str]]:
    """The same of every column of a table: its own rows, and the shared ones that its text names."""
    named = re.search(rf"\n## {table.name}\n[^|]*Schema [^|]*?Shared: (.*)\.\n", PAGE)
    assert named, f"docs/tables.md names no shared columns of {table.name}"
    shared = re.findall(r"`(\w+)`", named[1])
    return [*page_rows(table.name), *(row for row in page_rows("Columns of several tables") if row[0] in shared)]


@pytest.mark.parametrize("table", {**TABLES, **FLEET}.values(), ids={**TABLES, **FLEET})
def test_every_column_is_documented(table: ColumnTable) -> None:
    columns = [[c.name, c.kind, c.unit, c.words.rstrip()] for c in table.columns]
    assert sorted(documented(table)) == sorted(columns)


def written(table: ColumnTable, rows: Iterable[bytes], path: Path, ending: Ending) -> Path:
    with path.open("wb") as out:
        table_writer.write(table, rows, out, ending)
    return path


SOME = LOGS[::6]
some_and_all = pytest.mark.parametrize("logs", [SOME, pytest.param(LOGS, marks=pytest.mark.sweep)], ids=["some", "all"])


def rows_of(name: str, logs: Sequence[Path]) -> list[bytes]:
    """The rows of bundled logs, as one table."""
    return _rows_of(name, len(logs))


@cache
def _rows_of(name: str, count: int) -> list[bytes]:
    table, logs = TABLES[name], LOGS if count == len(LOGS) else SOME
    if table is EVENTS:
        return list(EventRows([str(log) for log in logs], 1 << 40).lines())
    if table is SAMPLES:
        return list(measured_rows(table, [report(vllm(model="m"), samples=GivenRows(40 * samples()))]))
    if table is BATCHES:
        return list(measured_rows(table, [report(sglang(), batches=GivenRows(40 * prefills()))]))
    return list(request_rows([cachedoctor.analyze(log) for log in logs]))


@pytest.mark.sample(1)
@some_and_all
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_parquet_has_the_documented_types_and_all_values(table: ColumnTable, logs: list[Path], tmp_path: Path) -> None:
    """In polars and in duckdb."""
    rows = rows_of(table.name, logs)
    path = written(table, rows, tmp_path / "t.parquet", "parquet")
    wanted = [json.loads(row) for row in rows]
    kinds = {name: kind for name, kind, *_ in documented(table)}
    assert len(wanted) > 100
    read = pl.read_parquet(path)
    assert dict(read.schema) == {name: IN_POLARS[kind] for name, kind in kinds.items()}
    assert read.to_dicts() == wanted
    found = duckdb.sql(f"select * from read_parquet('{path}')")
    assert dict(zip(found.columns, map(str, found.types), strict=True)) == {
        name: IN_DUCKDB[kind] for name, kind in kinds.items()
    }
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == wanted


def test_parquet_says_what_its_columns_mean(tmp_path: Path) -> None:
    path = written(REQUESTS, [], tmp_path / "t.parquet", "parquet")
    meanings = json.loads(pl.read_parquet_metadata(path)["cachedoctor"])
    assert meanings["schema"] == "cachedoctor.requests/1"
    assert meanings["columns"]["prompt_ms"] == {"unit": "ms", "description": "prompt processing time"}
    assert meanings["columns"]["outcome"]["unit"] is None
    assert set(meanings["columns"]) == {c.name for c in REQUESTS.columns}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows_give_all_columns(table: ColumnTable, ending: Ending, tmp_path: Path) -> None:
    path = written(table, [], tmp_path / f"t.{ending}", ending)
    if ending == "ndjson":
        assert path.read_bytes() == b""
    elif ending == "csv":
        assert path.read_text() == ",".join(c.name for c in table.columns) + "\n"
    else:
        assert pl.read_parquet(path).schema.names() == [c.name for c in table.columns]


@some_and_all
def test_csv_has_every_row_once(logs: list[Path], tmp_path: Path) -> None:
    rows = rows_of("requests", logs)
    many = list(chain.from_iterable(repeat(rows, 10_000 // len(rows) + 1)))
    wanted = [json.loads(row) for row in rows] * (len(many) // len(rows))
    path = written(REQUESTS, many, tmp_path / "t.csv", "csv")
    read = pl.read_csv(path, infer_schema_length=None)
    assert read.height == len(many)
    for name in ("prompt_tokens", "prompt_ms", "outcome", "partial"):
        assert read[name].to_list() == [row[name] for row in wanted]


@some_and_all
def test_ndjson_is_one_object_per_row(logs: list[Path], tmp_path: Path) -> None:
    rows = rows_of("events", logs)
    path = written(EVENTS, rows, tmp_path / "t.ndjson", "ndjson")
    assert path.read_bytes().splitlines() == rows


def test_rows_are_those_of_the_report() -> None:
    """Every key of a request is a column, or several; facts of the session are beside it."""
    log = next(log for log in LOGS if "cache-ram-evicts-b9294" in str(log))
    report = report_of(log.read_bytes())
    rows = [json.loads(row) for row in request_rows([cachedoctor.analyze(log)])]
    sessions = {s["index"]: s for s in report["sessions"]}
    assert len(rows) == len(report["requests"]) > 0
    for row, request in zip(rows, report["requests"], strict=True):
        checkpoints = request.pop("checkpoints")
        for name, value in request.items():
            if name not in ("path", "identities", "bounds", "at_least"):  # by field: a table has columns of one kind
                assert row[name] == value, name
        for name in ("tried", "restored", "created", "erased"):
            assert row[f"checkpoints_{name}"] == checkpoints[name]
        for name in ("origin", "engine", "build", "build_min", "build_max", "model", "memory", "n_slots", "n_ctx_slot"):
            assert row[name] == sessions[request["session"]][name]


def request(**values: Any) -> RequestRow:
    known: dict[str, Any] = dict.fromkeys(RequestRow.__struct_fields__)
    known |= {"index": 0, "session": 0, "path": "a.log", "derived": [], "codes": [], "replay_missing": []}
    known |= {"slot": 0, "task": 0, "first_line": 1, "last_line": 9, "outcome": "reused", "partial": False}
    known |= {"saved_to_ram": False, "identities": {}, "bounds": {}, "at_least": {}}
    return RequestRow(**(known | {"checkpoints": CheckpointRow(None, None, None, None)} | values))


def cells(row: RequestRow, session: Session) -> dict[str, str]:
    out = io.BytesIO()
    table_writer.write(REQUESTS, Numbering().lines([row], [session]), out, "csv")
    head, line = out.getvalue().decode().rstrip("\n").split("\n")
    return dict(zip(head.split(","), line.split(","), strict=True))


def test_csv_joins_lists_and_spans() -> None:
    held = CheckpointRow(2, 1, 0, 0, [(0, 99), (100, 250)], (0, 99))
    found = cells(request(codes=["CD101", "CD201"], checkpoints=held), Session(0, "a.log"))
    assert found["codes"] == "CD101 CD201"
    assert found["checkpoints_held"] == "0-99 100-250"
    assert (found["checkpoint_pos_min"], found["checkpoint_pos_max"]) == ("0", "99")
    assert found["prompt_tokens"] == found["build"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+1", "@SUM(A1)"])
def test_no_text_of_csv_is_a_formula(text: str) -> None:
    """In any column that a log or a user fills."""
    found = cells(
        request(path=text, client=text, endpoint=text, codes=[text]), Session(0, text, origin=text, model=text)
    )
    assert found["path"] == f"./{text}"
    for name in ("client", "endpoint", "codes", "origin", "model"):
        assert found[name] == f"'{text}", name


def test_after_a_semicolon_neither() -> None:
    """Where lists are separated by it, a spreadsheet begins a cell there."""
    text = "m;=1+1; @SUM(A1);x"
    found = cells(request(path=text, client=text), Session(0, text, origin=text, model=text))
    for name in ("path", "client", "origin", "model"):
        assert found[name] == "m;'=1+1; '@SUM(A1);x", name


def test_no_text_of_csv_controls_a_terminal() -> None:
    text = "a\x1b[31mb\u202ec\x00d"
    found = cells(request(path=text, client=text), Session(0, text, origin=text, model=text))
    for name in ("path", "client", "origin", "model"):
        assert found[name] == "a\ufffd[31mb\ufffdc\ufffdd", name


def test_several_reports_are_numbered_through() -> None:
    """Two sessions of one number would else be one."""
    reports = [cachedoctor.analyze(log) for log in LOGS[:6]]
    rows = [json.loads(row) for row in request_rows(reports)]
    assert [row["index"] for row in rows] == list(range(len(rows)))
    paths: dict[int, set[str]] = {}
    for row in rows:
        paths.setdefault(row["session"], set()).add(row["path"])
    assert all(len(some) == 1 for some in paths.values())
    assert len({row["path"] for row in rows}) > 1


# ---- events

LOG = """\
2026-11-20T10:00:01.500000000Z stdout F 0.00.006.179 I srv    load_model: loading model '/models/sk-ant-api03-abcdefghij/m.gguf'
2026-11-20T10:00:02.000000000Z stdout F what this is nobody knows
2026-11-20T10:00:03.000000000Z stdout F 1.02.003.004 I slot launch_slot_: id  3 | task 17 | processing task, is_child = 0
2026-11-20T10:00:04.000000000Z stdout F 0.00.153.932 I slot   operator(): id  0 | task -1 | selected slot by LRU, t_last = -1
"""  # noqa: E501


def events(log: str, tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "server.log"
    path.write_text(log)
    return [json.loads(row) for row in EventRows([str(path)], 1 << 30).lines()]


def test_an_event_is_a_line_with_its_clocks_and_fields(tmp_path: Path) -> None:
    first, second, third = events(LOG, tmp_path)
    assert (first["line"], first["message"], first["slot"], first["task"]) == (1, "load_model", None, None)
    assert json.loads(first["fields"]) == {"name": "/models/sk-ant-<key>/m.gguf"}
    assert first["time"] == "2026-11-20T10:00:01.500000Z"
    assert (second["line"], second["level"], second["slot"], second["task"]) == (3, "I", 3, 17)
    assert second["uptime_ms"] == 62_003.004
    assert (third["slot"], third["task"]) == (0, None)
    assert third["path"].endswith("server.log")


def test_events_of_several_servers_are_in_the_order_of_the_lines(tmp_path: Path) -> None:
    line = "slot launch_slot_: id  0 | task {n} | processing task"
    log = "".join(f"[{50000 + n % 2}] {line.format(n=n)}\n" for n in range(8))
    found = events(log, tmp_path)
    assert [row["line"] for row in found] == list(range(1, 9))
    assert {row["origin"] for row in found} == {"50000", "50001"}


def test_texts_of_events_are_masked_and_cut(tmp_path: Path) -> None:
    long = "x" * 5000
    log = (
        f"0.00.637.415 W slot   operator(): id  0 | task 9 | new: ... {long} cch= | sk-ant-api03-abcdefghij {long}\n"
        f"srv  log_server_r: request: {json.dumps({'prompt': 'sk-ant-api03-abcdefghij ' + long})}\n"
    )
    found = events(log, tmp_path)
    assert len(found) == 2
    text = " ".join(row["fields"] for row in found)
    assert "abcdefghij" not in text
    assert all(len(row["fields"]) < 600 for row in found)
    assert any("cch= | " in row["fields"] for row in found)


@pytest.mark.parametrize("logs", [LOGS[:40:8], pytest.param(LOGS[:40], marks=pytest.mark.sweep)], ids=["some", "more"])
def test_every_recognised_line_of_a_log_is_an_event(logs: list[Path]) -> None:
    """As many as analyze recognised, or fewer where only the beginning of a message is known."""
    counts = [
        (len(list(EventRows([str(log)], 1 << 40).lines())), cachedoctor.analyze(log).inputs[0].recognised)
        for log in logs
    ]
    assert all(0.9 * recognised <= found <= recognised for found, recognised in counts), counts
