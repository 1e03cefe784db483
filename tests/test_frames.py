"""The table of requests reads back as the report has it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import cachedoctor
from cachedoctor.frames import write
from cachedoctor.model import CacheDoctorError

LOG = Path(__file__).parent.parent / "fixtures/cases/billing-header-hybrid/server.log"


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in cachedoctor.analyze(LOG).requests.lines()]


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_table_reads_back(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"requests.{ending}"
    write(cachedoctor.analyze(LOG).requests.lines(), str(path))
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "ndjson": pl.read_ndjson}[ending]
    table = read(path)
    expected = rows()
    assert table.height == len(expected) == 4
    for name in ("prompt_tokens", "cached_tokens", "processed_tokens", "outcome"):
        assert table[name].to_list() == [row[name] for row in expected]
    assert table["checkpoints_created"].to_list() == [row["checkpoints"]["created"] for row in expected]  # type: ignore[index]


def test_no_requests_give_an_empty_table_with_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    write([], str(path))
    table = pl.read_parquet(path)
    assert table.height == 0
    assert "checkpoints_tried" in table.columns


def test_unknown_ending_and_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(CacheDoctorError, match="unknown table format"):
        write([], str(tmp_path / "requests.xlsx"))
    with pytest.raises(CacheDoctorError, match="cannot be written"):
        write([], str(tmp_path / "missing" / "requests.csv"))
