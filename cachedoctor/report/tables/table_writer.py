"""Writes a table as csv, ndjson or parquet; only parquet needs the optional polars."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from queue import Empty, Full, Queue
from threading import Event
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError
from cachedoctor.report.tables.columns import ColumnTable, Ending, Kind, TableColumn

if TYPE_CHECKING:
    from concurrent.futures import Future

    import polars as pl


def require_polars(what: str) -> None:
    """Check that polars can be imported, before a log is read for minutes.

    Args:
        what: what needs it, as the user calls it.

    Raises:
        CacheDoctorError: it is not installed.
    """
    try:
        import polars  # noqa: F401
    except ImportError:
        raise CacheDoctorError(f"{what} needs polars", install("tables")) from None


_LOOKS_AGAIN = 0.2
"""Seconds after which a waiting thread checks whether more rows follow."""
_FORMULA_BEHIND_SEMICOLON = late(r"(;\s*)([=+@-])")
"""If list items are separated by semicolons, a spreadsheet starts a new cell after each semicolon."""
_JOINERS = late("[\u034f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters that are not drawn, though Unicode counts them as printable."""


def csv_lines(table: ColumnTable, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the header and a line per row, each a JSON object that has all columns."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    yield ",".join(column.name for column in table.columns).encode() + b"\n"
    for row in rows:
        values = decode(row)
        yield ",".join([_cell(column, values[column.name]) for column in table.columns]).encode() + b"\n"


def _cell(column: TableColumn, value: Any) -> str:
    """Write a value; what is unknown is empty, and an empty text is two quotes."""
    if value is None:
        return ""
    match column.kind:
        case "text":
            return _quoted(_harmless(value, column.name == "path"))
        case "names":
            return _quoted(_harmless(" ".join(value), False))
        case "spans":
            return _quoted(" ".join(f"{span['pos_min']}-{span['pos_max']}" for span in value))
        case "number":
            return msgspec.json.encode(float(value)).decode()
        case _:
            return msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    return text if text and not {",", '"'} & set(text) else '"' + text.replace('"', '""') + '"'


def _harmless(text: str, is_path: bool) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _JOINERS.sub("\ufffd", "".join(char if _drawn(char) else "\ufffd" for char in text))
    text = _FORMULA_BEHIND_SEMICOLON.sub(r"\1'\2", text)
    # What begins like a formula would be run by a spreadsheet; with ./ before it, a path is still the same file.
    if is_path:
        return "./" + text if text[:1] in ("=", "+", "@") or (text[:1] == "-" and len(text) > 1) else text
    return "'" + text if text.startswith(("=", "+", "@", "-")) else text


def _drawn(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


_BATCH = 4096
"""Rows held at a time."""
_GROUP = 1 << 14
"""Rows of a row group in parquet."""


def schema_of(table: ColumnTable) -> pl.Schema:
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


def fits(table: ColumnTable, data: bytes) -> bool:
    """Whether these bytes are a table in parquet whose columns have the types of ``table``, as far as it has them."""
    import polars as pl

    try:
        found = pl.read_parquet_schema(io.BytesIO(data))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    known = schema_of(table)
    return bool(found) and all(known.get(name, kind) == kind for name, kind in found.items())


def texts(data: bytes, column: str, most: int) -> list[str | None]:
    """Return a column of text of a table in parquet of at most ``most`` rows; none of a longer or damaged one."""
    import polars as pl

    try:
        lazy = pl.scan_parquet(io.BytesIO(data))
        if lazy.select(pl.len()).collect().item() > most:
            return []
        return lazy.select(column).collect()[column].to_list()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return []


def write(table: ColumnTable, rows: Iterable[bytes], out: IO[bytes], ending: Ending) -> None:
    """Write ``rows``, JSON objects that have all columns in their order; memory does not grow with their number.

    Raises:
        CacheDoctorError: it is parquet, and polars is not installed.
    """
    if ending == "ndjson":
        for row in rows:
            out.write(row + b"\n")
    elif ending == "csv":
        out.writelines(csv_lines(table, rows))
    else:
        require_polars("parquet")
        _write_parquet(table, rows, out)


def _batches(table: ColumnTable, rows: Iterable[bytes]) -> Iterator[pl.DataFrame]:
    """Yield the rows as frames, at least an empty one."""
    import polars as pl

    schema, left, first = schema_of(table), iter(rows), True
    while lines := list(islice(left, _BATCH)):
        first = False
        yield pl.read_ndjson(io.BytesIO(b"\n".join(lines)), schema=schema)
    if first:
        yield pl.DataFrame(schema=schema)


def _write_parquet(table: ColumnTable, rows: Iterable[bytes], out: IO[bytes]) -> None:
    """Write in a thread: polars does not react to signals, and the rows may come from a log that is being read."""
    from concurrent.futures import ThreadPoolExecutor

    from polars.io.plugins import register_io_source

    feed: Queue[pl.DataFrame | None] = Queue(2)
    ended = Event()

    def source(_: Any, __: Any, ___: Any, ____: Any) -> Iterator[pl.DataFrame]:
        # A signal can come between a batch and the word that it is there: nobody waits for ever.
        while not (ended.is_set() and feed.empty()):
            try:
                batch = feed.get(timeout=_LOOKS_AGAIN)
            except Empty:
                continue
            if batch is None:
                return
            yield batch

    lazy = register_io_source(source, schema=schema_of(table))
    meanings, target = {"cachedoctor": _meanings(table)}, _Target(out)
    file = cast("IO[bytes]", target)
    with ThreadPoolExecutor(1) as pool:
        try:
            written = pool.submit(lambda: lazy.sink_parquet(file, row_group_size=_GROUP, metadata=meanings))
            for batch in _batches(table, rows):
                _hand_over(feed, batch, written)
                if written.done():  # the disk is full
                    break
            _hand_over(feed, None, written)
        finally:
            ended.set()
        try:
            written.result()
        except Exception:
            if target.fault is not None:
                raise target.fault from None
            raise


class _Target(io.RawIOBase):
    """The output for polars; keeps the error, because polars only reports that there was one."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.fault: OSError | None = None

    def writable(self) -> bool:
        """Always true: the output is only written."""
        return True

    def write(self, data: Any) -> int:
        """Pass bytes on."""
        try:
            return self._out.write(data)
        except OSError as fault:
            self.fault = fault
            raise


def _hand_over(feed: Queue[pl.DataFrame | None], batch: pl.DataFrame | None, written: Future[Any]) -> None:
    """Wait until there is space, or until the reader has stopped."""
    while not written.done():
        try:
            feed.put(batch, timeout=0.1)
        except Full:
            continue
        return


def _meanings(table: ColumnTable) -> str:
    """What the columns of the file mean, for who opens it without this program."""
    columns = {c.name: {"unit": c.unit or None, "description": c.words} for c in table.columns}
    return msgspec.json.encode({"schema": table.schema, "columns": columns}).decode()
