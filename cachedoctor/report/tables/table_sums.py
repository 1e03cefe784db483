"""Sums over tables of requests in parquet, group by group, read as a stream.

Takes 262,144 rows at a time. Sums are whole numbers (tokens, nanoseconds), so that they are exactly the totals of the
reports; quantiles count values in classes 1 % wide, because exact ones hold every value in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cachedoctor.knowledge import builds
from cachedoctor.model import By, CacheDoctorError, StatsRow, StatsTable
from cachedoctor.model.bounds import LONGEST, MOST
from cachedoctor.report.tables.columns import REQUESTS
from cachedoctor.report.tables.table_writer import schema_of

if TYPE_CHECKING:
    import polars as pl

Source: TypeAlias = str | tuple[str, ...]
"""A table: a file, or files of one that was written in parts."""
_NEEDED = frozenset({"parent", "prompt_tokens", "cached_tokens", "processed_tokens", "prompt_ms"})
_TIMES = frozenset({"prompt_ms", "avoidable_ms"})
_TOKENS = ("lost_tokens", "client_lost_tokens", "server_lost_tokens")
_SUMMED = ("prompt_tokens", "cached_tokens", "processed_tokens", "avoidable_tokens", *_TOKENS, *_TIMES)
_BUILD = ("build", "build_min", "build_max")
_HOUR = r"^(.*T\d\d):"
_ZONE = r"(Z|[+-]\d\d:\d\d)$"
_NS = 1e6
"""Nanoseconds per millisecond: integer sums are exact, and therefore match those of the reports."""
_STEP = math.log(1.01)
"""Values are counted in classes 1 % wide: exact quantiles would hold every value in memory."""
_ROWS = 1 << 18
"""Rows summed up at a time."""
_SHARES = (50, 90)
_SPREAD = ("prompt_ms", "speed")


def check_parts(paths: tuple[str, ...], folder: str) -> None:
    """Raise ``CacheDoctorError`` unless these are parts of a table of requests that can be read to their ends."""
    import polars as pl

    try:
        beyond = _beyond(_scan(paths), [column.name for column in REQUESTS.columns])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CacheDoctorError(
            f"{folder}: a table in the folder cannot be read", "run cachedoctor fleet again"
        ) from error
    if beyond is not None:
        what = f"{folder}: column {beyond} of a table in the folder contains an impossible number"
        raise CacheDoctorError(what, "give the folder that cachedoctor fleet wrote")


def check(path: str) -> None:
    """Raise ``CacheDoctorError`` unless ``path`` is a table of requests that can be read to its end."""
    import polars as pl

    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise CacheDoctorError(
            f"{path}: polars cannot open names that are not UTF-8", "rename the file, or link to it"
        ) from error
    try:
        have = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CacheDoctorError(
            f"{path}: is not a parquet file", "give a table written by cachedoctor analyze -o requests.parquet"
        ) from error
    wanted = schema_of(REQUESTS)
    wrong = sorted(name for name, kind in have.items() if name in wanted and kind != wanted[name])
    wrong += sorted(_NEEDED - set(have))
    if wrong:
        what = f"{path}: is not a table of requests (column {wrong[0]} is missing or of another type)"
        raise CacheDoctorError(what, "give a table written by cachedoctor analyze -o requests.parquet")
    try:
        beyond = _beyond(pl.scan_parquet(path, glob=False), have)
    except pl.exceptions.PolarsError as error:
        raise CacheDoctorError(
            f"{path}: cannot be read to the end", "write the table again: cachedoctor analyze LOG -o requests.parquet"
        ) from error
    if beyond is not None:
        what = f"{path}: column {beyond} contains an impossible number"
        raise CacheDoctorError(what, "give a table written by cachedoctor analyze -o requests.parquet")


def _beyond(table: pl.LazyFrame, have: Iterable[str]) -> str | None:
    """Name a column of counts or times that holds more than its bound, or a time that is none; reads all of them."""
    import polars as pl

    columns = {name: pl.col(name) for name in _SUMMED if name in have}
    within = [
        (cell.is_between(0, LONGEST) if name in _TIMES else cell.is_between(-MOST, MOST)).all().alias(name)
        for name, cell in columns.items()
    ]
    found = table.select(within).collect(engine="streaming")
    return next((name for name in found.columns if not found[name].item()), None)


def tables(paths: Sequence[Source], kinds: Sequence[By | None]) -> list[StatsTable]:
    """Sum up the requests of all ``paths``, once for each of ``kinds``; None is all in one group."""
    return [StatsTable(by, _rows(paths, by)) for by in kinds]


def _scan(path: Source) -> pl.LazyFrame:
    """Scan a table; columns that its version did not have are null."""
    import polars as pl

    wanted = schema_of(REQUESTS)
    if isinstance(path, tuple):
        return pl.scan_parquet(list(path), schema=wanted, missing_columns="insert", extra_columns="ignore", glob=False)
    table = pl.scan_parquet(path, glob=False)
    have = table.collect_schema().names()
    return table.select(
        pl.col(name) if name in have else pl.lit(None, dtype=kind).alias(name) for name, kind in wanted.items()
    )


def _keys(by: By | None) -> list[pl.Expr]:
    import polars as pl

    if by is None:
        return [pl.lit(0).alias("all")]
    if by == "build":
        return [pl.col(name) for name in _BUILD]
    if by == "hour":
        time = pl.col("time")
        zone = time.str.extract(_ZONE).fill_null("")
        return [(time.str.extract(_HOUR).str.replace("T", " ") + ":00" + zone).alias("hour")]
    if by == "client":
        return [pl.coalesce("client_name", "client").alias("client")]
    return [pl.col(by)]


def _added(paths: Sequence[Source], names: list[str], query: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
    """Ask ``query`` for sums of groups, some rows at a time, and add them up: memory does not grow with the rows."""
    import polars as pl

    total = None
    for path in paths:
        table = _scan(path)
        rows = table.select(pl.len()).collect().item()
        for start in range(0, max(rows, 1), _ROWS):
            part = query(table.slice(start, _ROWS)).collect(engine="streaming")
            total = part if total is None else pl.concat([total, part]).group_by(names).sum()
    return pl.DataFrame() if total is None else total


def _known() -> pl.Expr:
    import polars as pl

    return pl.col("prompt_tokens").is_not_null() & pl.col("cached_tokens").is_not_null()


def _quantiles(paths: Sequence[Source], keys: list[pl.Expr], name: str) -> dict[tuple[Any, ...], list[float]]:
    """Quantiles of each group, exact to 0.5 %, of the requests that took any time."""
    import polars as pl

    value = pl.col("prompt_ms")
    wanted = pl.col("parent").is_null() & _known() & (value > 0) & (pl.col("processed_tokens") > 0)
    if name == "speed":
        value = pl.col("processed_tokens") / value * 1000
    grade = (value.log() / _STEP).round().cast(pl.Int32).alias("_grade")
    names = [key.meta.output_name() for key in keys]
    within = [*names, "_grade"]
    counted = _added(paths, within, lambda table: table.filter(wanted).select(*keys, grade).group_by(within).len())
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for *group, at, count in counted.iter_rows():
        groups.setdefault(tuple(group), []).append((at, count))
    return {group: [_quantile(sorted(grades), share / 100) for share in _SHARES] for group, grades in groups.items()}


def _quantile(grades: list[tuple[int, int]], share: float) -> float:
    before, wanted = 0, share * sum(count for _, count in grades)
    for grade, count in grades:
        before += count
        if before >= wanted:
            return math.exp(grade * _STEP)
    raise ValueError("no grades")


def _sums(paths: Sequence[Source], keys: list[pl.Expr]) -> list[dict[str, Any]]:
    import polars as pl

    own = pl.col("parent").is_null()
    known = own & _known()
    parts: dict[str, pl.Expr] = {
        "requests": own.cast(pl.Int64),
        "unknown_requests": (own & ~known).cast(pl.Int64),
        "prompt_tokens": pl.when(known).then(pl.col("prompt_tokens")),
        "cached_tokens": pl.when(known).then(pl.col("cached_tokens")),
        "processed_tokens": pl.when(known).then(pl.col("processed_tokens").fill_null(0)),
        "prompt_ns": pl.when(known).then(_whole(pl.col("prompt_ms"))),
        # rules count children as well, and so does what is avoidable in all
        "avoidable_tokens": pl.col("avoidable_tokens"),
        "avoidable_ns": _whole(pl.col("avoidable_ms")),
        **{name: pl.when(own).then(pl.col(name)) for name in _TOKENS},
    }
    names = [key.meta.output_name() for key in keys]
    # Sums of numbers within their bounds would overflow 64 bits without a word.
    cells = [*keys, *(cell.cast(pl.Int128).alias(f"_{name}") for name, cell in parts.items())]
    whole = [pl.col(f"_{name}").sum().alias(name) for name in parts]
    seen = [pl.col(f"_{name}").count().alias(f"{name}_seen") for name in parts]
    found = _added(paths, names, lambda table: table.select(cells).group_by(names).agg(*whole, *seen))
    return list(found.iter_rows(named=True))


def _whole(ms: pl.Expr) -> pl.Expr:
    import polars as pl

    return (ms * _NS).round().cast(pl.Int128)


def _rows(paths: Sequence[Source], by: By | None) -> list[StatsRow]:
    keys = _keys(by)
    names = [key.meta.output_name() for key in keys]
    spread = {name: _quantiles(paths, keys, name) for name in _SPREAD}
    rows = []
    for values in _sums(paths, keys):
        group = tuple(values[name] for name in names)
        for name, found in spread.items():
            values |= {
                f"{name}_p{share}": at for share, at in zip(_SHARES, found.get(group, (None, None)), strict=True)
            }
        rows.append(_row(values, by))
    if by is None:
        return rows or [StatsRow(None, 0, 0, *[None] * (len(StatsRow.__struct_fields__) - 3))]
    rows = [row for row in rows if row.requests or row.avoidable_tokens]
    if by in ("hour", "turn", "slot"):
        rows.sort(key=lambda row: (len(row.group or "") if by != "hour" else 0, row.group or ""))
    else:
        rows.sort(key=lambda row: (-(row.processed_tokens or 0), row.group or ""))
    return sorted(rows, key=lambda row: row.group is None)


def _row(values: dict[str, Any], by: By | None) -> StatsRow:
    def known(name: str) -> Any:
        return values[name] if values[f"{name}_seen"] else None

    def ms(name: str) -> float | None:
        total = known(name)
        return None if total is None else round(total / _NS, 3)

    prompt, cached = known("prompt_tokens"), known("cached_tokens")
    return StatsRow(
        group=_group(values, by),
        requests=values["requests"],
        unknown_requests=values["unknown_requests"],
        prompt_tokens=prompt,
        cached_tokens=cached,
        processed_tokens=known("processed_tokens"),
        reuse=cached / prompt if prompt else None,
        avoidable_tokens=known("avoidable_tokens"),
        avoidable_ms=ms("avoidable_ns"),
        prompt_ms=ms("prompt_ns"),
        **{name: known(name) for name in _TOKENS},
        **{name: values[name] for name in ("prompt_ms_p50", "prompt_ms_p90", "speed_p50", "speed_p90")},
    )


def _group(values: dict[str, Any], by: By | None) -> str | None:
    if by is None:
        return None
    if by == "build":
        low, high = values["build_min"], values["build_max"]
        return None if values["build"] is low is high is None else builds.describe(values["build"], low, high)
    return None if values[by] is None else str(values[by])
