"""Requests as a table: parquet, csv or ndjson. The only importer of polars. Knows columns; knows no log and no rule."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cachedoctor.model import CacheDoctorError

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".parquet", ".csv", ".ndjson")

_INTEGERS = (
    "index", "session", "slot", "task", "parent", "thread", "first_line", "last_line", "prompt_tokens", "cached_tokens",
    "processed_tokens", "generated_tokens", "common_prefix_tokens", "lost_tokens", "expected_cached",
)  # fmt: skip
_FLOATS = ("prompt_ms", "similarity", "f_keep")
_TEXTS = ("path", "selected_by", "outcome")
_FLAGS = ("restored_from_ram", "partial")
_LISTS = ("derived", "codes", "replay_missing")
_CHECKPOINTS = ("tried", "restored", "created", "erased")

_UNSEEN = r"[\p{C}\p{Zl}\p{Zp}\x{034f}\x{fe00}-\x{fe0f}\x{e0100}-\x{e01ef}]"
"""What controls a terminal or is not drawn, as a pattern of polars."""


def _schema() -> pl.Schema:
    import polars as pl

    columns: dict[str, pl.DataType] = {name: pl.Int64() for name in _INTEGERS}
    columns |= {name: pl.Float64() for name in _FLOATS} | {name: pl.String() for name in _TEXTS}
    columns |= {name: pl.Boolean() for name in _FLAGS} | {name: pl.List(pl.String()) for name in _LISTS}
    columns["checkpoints"] = pl.Struct({name: pl.Int64() for name in _CHECKPOINTS})
    return pl.Schema(columns)


def write(lines: Iterable[bytes], path: str) -> None:
    """Write requests (JSON objects of the report) as a table; the ending of ``path`` says which format.

    Streams through a temporary file, so that memory does not grow with the number of requests. The four checkpoint
    counts become columns ``checkpoints_tried`` and so on; in csv, lists are joined by blanks.

    Raises:
        CacheDoctorError: the ending is none of parquet, csv, ndjson, or the file cannot be written.
    """
    import polars as pl

    ending = Path(path).suffix
    if ending not in FORMATS:
        raise CacheDoctorError(f"{path}: unknown table format", f"end the name in {', '.join(FORMATS)}")
    with tempfile.NamedTemporaryFile(suffix=".ndjson") as spool:
        for line in lines:
            spool.write(line + b"\n")
        spool.flush()
        if spool.tell() == 0:
            table = pl.DataFrame(schema=_schema()).lazy()
        else:
            table = pl.scan_ndjson(spool.name, schema=_schema())
        flat = [pl.col("checkpoints").struct.field(name).alias(f"checkpoints_{name}") for name in _CHECKPOINTS]
        table = table.with_columns(flat).drop("checkpoints")
        try:
            _sink(table, path, ending)
        except OSError as error:
            raise CacheDoctorError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sink(table: pl.LazyFrame, path: str, ending: str) -> None:
    import polars as pl

    if ending == ".parquet":
        table.sink_parquet(path)
    elif ending == ".csv":
        lists = [pl.col(name).list.join(" ") for name in _LISTS]
        # A name that begins like a formula would be run by a spreadsheet; with ./ before it, it is the same file.
        safe = pl.col("path").str.replace_all(_UNSEEN, "\ufffd").str.replace(r"^([=+@]|-.)", "./$1")
        table.with_columns([*lists, safe]).sink_csv(path)
    else:
        table.sink_ndjson(path)
