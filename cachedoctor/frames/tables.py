"""Writes a table: rows come as JSON, one by one, and go out as parquet, csv or ndjson in batches.

Knows polars and columns. Knows nothing of how a row came about, and not where the bytes go.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from queue import Full, Queue
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from cachedoctor.frames.columns import Column, Ending, Kind, Table

if TYPE_CHECKING:
    from concurrent.futures import Future

    import polars as pl

_BATCH = 4096
"""Rows held at a time."""
_GROUP = 1 << 14
"""Rows of a row group in parquet."""
_UNSEEN = r"[\p{C}\p{Zl}\p{Zp}\x{034f}\x{fe00}-\x{fe0f}\x{e0100}-\x{e01ef}]"
"""What controls a terminal or is not drawn, as a pattern of polars."""


def schema_of(table: Table) -> pl.Schema:
    """Return the types of the columns."""
    import polars as pl

    types: dict[Kind, Any] = {
        "integer": pl.Int64(),
        "number": pl.Float64(),
        "text": pl.String(),
        "flag": pl.Boolean(),
        "names": pl.List(pl.String()),
        "spans": pl.List(pl.Struct({"pos_min": pl.Int64(), "pos_max": pl.Int64()})),
    }
    return pl.Schema({column.name: types[column.kind] for column in table.columns})


def write(table: Table, rows: Iterable[bytes], out: IO[bytes], ending: Ending) -> None:
    """Write ``rows``, JSON objects that have all columns in their order; memory does not grow with their number.

    In csv lists are joined by blanks, spans are ``pos_min-pos_max``, and no cell controls a terminal or is run by a
    spreadsheet.
    """
    if ending == "ndjson":
        for row in rows:
            out.write(row + b"\n")
    elif ending == "csv":
        safe = [_csv_cell(column) for column in table.columns]
        for number, batch in enumerate(_batches(table, rows)):
            batch.select(safe).write_csv(out, include_header=not number)
    else:
        _write_parquet(table, rows, out)


def _batches(table: Table, rows: Iterable[bytes]) -> Iterator[pl.DataFrame]:
    """Yield the rows as frames, at least an empty one."""
    import polars as pl

    schema, left, first = schema_of(table), iter(rows), True
    while lines := list(islice(left, _BATCH)):
        first = False
        yield pl.read_ndjson(io.BytesIO(b"\n".join(lines)), schema=schema)
    if first:
        yield pl.DataFrame(schema=schema)


def _write_parquet(table: Table, rows: Iterable[bytes], out: IO[bytes]) -> None:
    """Write in a thread: polars hears of no signal, and the rows may be a log that is being read."""
    from concurrent.futures import ThreadPoolExecutor

    from polars.io.plugins import register_io_source

    feed: Queue[pl.DataFrame | None] = Queue(2)

    def source(_: Any, __: Any, ___: Any, ____: Any) -> Iterator[pl.DataFrame]:
        while (batch := feed.get()) is not None:
            yield batch

    lazy = register_io_source(source, schema=schema_of(table))
    meanings, target = {"cachedoctor": _meanings(table)}, _Target(out)
    file = cast("IO[bytes]", target)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(lambda: lazy.sink_parquet(file, row_group_size=_GROUP, metadata=meanings))
        try:
            for batch in _batches(table, rows):
                _hand_over(feed, batch, written)
                if written.done():  # the disk is full
                    break
        finally:
            _hand_over(feed, None, written)
        try:
            written.result()
        except Exception:
            if target.fault is not None:
                raise target.fault from None
            raise


class _Target(io.RawIOBase):
    """The output as polars sees it; keeps the error of which polars tells only that there was one."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.fault: OSError | None = None

    def writable(self) -> bool:
        """It is there to be written."""
        return True

    def write(self, data: Any) -> int:
        """Pass bytes on."""
        try:
            return self._out.write(data)
        except OSError as fault:
            self.fault = fault
            raise


def _hand_over(feed: Queue[pl.DataFrame | None], batch: pl.DataFrame | None, written: Future[Any]) -> None:
    """Wait until there is room, or nobody takes more."""
    while not written.done():
        try:
            feed.put(batch, timeout=0.1)
        except Full:
            continue
        return


def _meanings(table: Table) -> str:
    """What the columns of the file mean, for who opens it without this program."""
    columns = {c.name: {"unit": c.unit or None, "description": c.words} for c in table.columns}
    return msgspec.json.encode({"schema": table.schema, "columns": columns}).decode()


def _csv_cell(column: Column) -> pl.Expr:
    import polars as pl

    cell = pl.col(column.name)
    if column.kind == "spans":
        low, high = (pl.element().struct.field(name).cast(pl.String) for name in ("pos_min", "pos_max"))
        return cell.list.eval(pl.concat_str([low, pl.lit("-"), high])).list.join(" ")
    if column.kind == "names":
        cell = cell.list.join(" ")
    elif column.kind != "text":
        return cell
    # Where a list is separated by semicolons, a spreadsheet begins another cell behind one.
    seen = cell.str.replace_all(_UNSEEN, "\ufffd").str.replace_all(r"(;\s*)([=+@-])", "$1'$2")
    # What begins like a formula would be run by a spreadsheet; with ./ before it, a path is still the same file.
    if column.name == "path":
        return seen.str.replace(r"^([=+@]|-.)", "./$1")
    return seen.str.replace(r"^([=+@-])", "'$1")
