"""Sums over the tables of a fleet, read as a stream, some files at a time: memory grows with logs, not with requests.

Sums are whole numbers (tokens, nanoseconds), so that they are those of the reports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cachedoctor.knowledge import builds
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.stats import FleetCause, FleetCauseGroup, FleetFile, FleetGroup, FleetLog, FleetPage, FleetSums
from cachedoctor.report.tables.columns import FILES, FINDINGS, REQUESTS, SESSIONS, ColumnTable
from cachedoctor.report.tables.table_writer import schema_of

if TYPE_CHECKING:
    import polars as pl

_FILES = 500
"""Files that are open at a time."""
_NS = 1e6
"""Nanoseconds of a millisecond: sums of whole numbers do not depend on their order."""
_LOGS, _CAUSES, _GROUPS, _DAYS, _AMISS = 200, 60, 60, 400, 200
"""Rows of a page; the tables have all."""
_DAY = r"^(.+)T\d\d:"
_SEVERITIES = ("note", "warning", "error")
_CONFIDENCES = ("low", "medium", "high")
_BUILD = ("engine", "version", "build", "build_min", "build_max")
_AMISS_STATUS = ("cut", "failed")


def _scan(paths: Sequence[str], table: ColumnTable) -> Iterator[pl.LazyFrame]:
    """Yield the rows of the files of a table, some files at a time, each row with the ``part`` that it is from."""
    import polars as pl

    for at in range(0, len(paths), _FILES):
        some = list(paths[at : at + _FILES])
        found = pl.scan_parquet(
            some, schema=schema_of(table), missing_columns="insert", extra_columns="ignore", glob=False,
            include_file_paths="_file",
        )  # fmt: skip
        yield found


def rows_of(paths: Sequence[str], table: ColumnTable) -> Iterator[dict[str, Any]]:
    """Yield the rows of small tables."""
    yield from _collected(paths, table, lambda frame: frame.drop("_file"))


def _collected(
    paths: Sequence[str], table: ColumnTable, query: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> Iterator[dict[str, Any]]:
    """Ask ``query`` of some files at a time; rows of one group from two of them stand side by side.

    Raises:
        CacheDoctorError: one of them is damaged.
    """
    import polars as pl

    try:
        for frame in _scan(paths, table):
            yield from query(frame).collect(engine="streaming").iter_rows(named=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        what = f"{os.path.dirname(paths[0])}: a table in the folder cannot be read"
        raise CacheDoctorError(what, "remove the folder, and run cachedoctor fleet again") from error


def page(version: str, tables: dict[str, list[str]]) -> FleetPage:
    """Sum up the files of all tables, by name."""
    files = _grouped(tables["files"], FILES, _of_files)
    reports = {row["log"]: row["report"] for row in files if row["report"]}
    requests = {
        name: _grouped(tables["requests"], REQUESTS, _of_requests(keys))
        for name, keys in (("part", _part), ("build", _build), ("client", _client), ("day", _day))
    }
    names = {os.path.splitext(os.path.basename(row["part"]))[0]: row for row in requests["part"]}
    findings = _grouped(tables["findings"], FINDINGS, _of_findings)
    logs = _logs(files, names, findings)
    causes = _causes(findings, reports)
    sessions = _grouped(tables["sessions"], SESSIONS, lambda frame: frame.group_by("engine").len())
    amiss = list(_amiss(tables["files"]))
    clients = _groups(requests["client"])
    counted: dict[str, int] = {}
    for row in files:
        counted[row["status"]] = counted.get(row["status"], 0) + row["files"]
    return FleetPage(
        version, _added([row["sums"] for row in _with_sums(requests["part"])]), counted,
        sum(row["size"] or 0 for row in files), sum(row["len"] for row in sessions),
        {row["engine"] or "unknown": row["len"] for row in sessions},
        logs[:_LOGS], len(logs), causes[:_CAUSES], len(causes),
        _cause_builds(findings), _cause_clients(tables["requests"], {c.code: c.name for c in causes}),
        _groups(requests["build"])[:_GROUPS], clients[:_GROUPS], len(clients),
        sorted(_groups(requests["day"]), key=lambda day: (day.group is None, day.group or ""))[-_DAYS:],
        amiss[:_AMISS], len(amiss),
    )  # fmt: skip


def _grouped(
    paths: Sequence[str], table: ColumnTable, query: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> list[dict[str, Any]]:
    return list(_collected(paths, table, query))


# ---- requests


def _part() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("_file").alias("part")]


def _build() -> list[pl.Expr]:
    import polars as pl

    return [pl.col(name) for name in ("build", "build_min", "build_max")]


def _client() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("client")]


def _day() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("time").str.extract(_DAY).alias("day")]


def _of_requests(keys: Callable[[], list[pl.Expr]]) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    import polars as pl

    own = pl.col("parent").is_null()
    known = own & pl.col("prompt_tokens").is_not_null() & pl.col("cached_tokens").is_not_null()
    cells = {
        "prompt_tokens": pl.when(known).then(pl.col("prompt_tokens")),
        "cached_tokens": pl.when(known).then(pl.col("cached_tokens")),
        # rules count children as well, and so does what is avoidable in all
        "avoidable_tokens": pl.col("avoidable_tokens"),
        "prompt_ns": (pl.when(known).then(pl.col("prompt_ms")) * _NS).round(),
    }
    sums = [
        own.sum().alias("requests"),
        (own & ~known).sum().alias("unknown_requests"),
        *(cell.cast(pl.Int128).sum().alias(name) for name, cell in cells.items()),
        *(cell.count().alias(f"{name}_seen") for name, cell in cells.items()),
    ]
    return lambda frame: frame.select(*_needed(keys())).group_by([k.meta.output_name() for k in keys()]).agg(*sums)


def _needed(keys: list[pl.Expr]) -> list[pl.Expr | str]:
    return [*keys, "parent", "prompt_tokens", "cached_tokens", "avoidable_tokens", "prompt_ms"]


def _sums(row: dict[str, Any]) -> FleetSums:
    def known(name: str) -> Any:
        return row[name] if row[f"{name}_seen"] else None

    spent = known("prompt_ns")
    return FleetSums(
        row["requests"], row["unknown_requests"], known("prompt_tokens"), known("cached_tokens"),
        known("avoidable_tokens"), None if spent is None else spent / _NS,
    )  # fmt: skip


def _with_sums(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield row | {"sums": _sums(row)}


def _added(sums: Sequence[FleetSums]) -> FleetSums:
    def added(name: str) -> Any:
        found = [value for one in sums if (value := getattr(one, name)) is not None]
        return sum(found) if found else None

    return FleetSums(
        sum(one.requests for one in sums), sum(one.unknown_requests for one in sums), added("prompt_tokens"),
        added("cached_tokens"), added("avoidable_tokens"), added("prompt_ms"),
    )  # fmt: skip


def _groups(rows: list[dict[str, Any]]) -> list[FleetGroup]:
    """Put the rows of one group together, the costliest first."""
    groups: dict[str | None, list[FleetSums]] = {}
    for row in _with_sums(rows):
        groups.setdefault(_name(row), []).append(row["sums"])
    found = [FleetGroup(name, _added(sums)) for name, sums in groups.items()]
    return sorted(
        found, key=lambda group: (-(group.sums.avoidable_tokens or 0), -group.sums.requests, str(group.group))
    )


def _name(row: dict[str, Any]) -> str | None:
    if "build_min" in row:
        return _build_name(row)
    found: str | None = row["client"] if "client" in row else row["day"]
    return found


def _build_name(row: dict[str, Any]) -> str | None:
    """A build of llama-server, or engine and version of another server."""
    if row["build"] is row["build_min"] is row["build_max"] is None:
        version, engine = row.get("version"), row.get("engine")
        return f"{engine} {version}" if engine and version else None
    return builds.describe(row["build"], row["build_min"], row["build_max"])


# ---- files, findings


def _of_files(frame: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    return frame.group_by("log", "part", "status").agg(
        pl.len().alias("files"), pl.col("size", "recognised").sum(), pl.col("report").drop_nulls().first()
    )


def _amiss(paths: Sequence[str]) -> Iterator[FleetFile]:
    import polars as pl

    def wrong(frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.filter(pl.col("reason").is_not_null()).select("path", "status", "reason").sort("path")

    for row in _collected(paths, FILES, wrong):
        yield FleetFile(row["path"], row["status"], row["reason"])


def _of_findings(frame: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    return frame.group_by("log", "code", "name", *_BUILD).agg(
        _ranked("severity", _SEVERITIES).max(),
        _ranked("confidence", _CONFIDENCES).max(),
        pl.struct("fix", "commands").sort_by("tokens").last().alias("do"),
        pl.col("requests").sum(),
        pl.col("tokens").sum(),
        (pl.col("ms") * _NS).round().cast(pl.Int128).sum().alias("ns"),
        pl.col("ms").count().alias("timed"),
        pl.len().alias("findings"),
    )


def _ranked(column: str, order: Sequence[str]) -> pl.Expr:
    import polars as pl

    return pl.col(column).replace_strict({word: rank for rank, word in enumerate(order)}, default=0)


def _logs(
    files: list[dict[str, Any]], sums: dict[str, dict[str, Any]], findings: list[dict[str, Any]]
) -> list[FleetLog]:
    """Return the logs of servers, the worst first."""
    found: dict[str, FleetLog] = {}
    parts: dict[str, str] = {}
    for row in files:
        if row["recognised"] or row["part"] in sums:
            log = found.setdefault(row["log"], FleetLog(row["log"], None, 0, FleetSums()))
            log.report = row["report"] or log.report
            log.files += row["files"]
            parts[row["log"]] = row["part"]
    for name, log in found.items():
        if parts[name] in sums:
            log.sums = _sums(sums[parts[name]])
    costliest: dict[str, int] = {}
    for row in sorted(findings, key=lambda row: (-row["tokens"], -row["severity"], row["code"])):
        log = found.get(row["log"], FleetLog(row["log"], None, 0, FleetSums()))
        log.findings += row["findings"]
        if costliest.setdefault(row["log"], row["tokens"]) == row["tokens"] and log.worst is None:
            log.worst = f"{row['code']} {row['name']}"
    return sorted(found.values(), key=lambda log: (-(log.sums.avoidable_tokens or 0), -log.findings, log.log))


def _causes(findings: list[dict[str, Any]], reports: dict[str, str]) -> list[FleetCause]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in findings:
        groups.setdefault((row["code"], row["name"]), []).append(row)
    causes = [_cause(rows, reports) for rows in groups.values()]
    return sorted(causes, key=lambda c: (*_urgency(c), c.code))


def _urgency(cause: FleetCause) -> tuple[int, ...]:
    """What comes first: high confidence with a known cost, then what may be the cause, notes last."""
    is_proven = cause.confidence == "high" and cause.tokens > 0
    severity, confidence = _SEVERITIES.index(cause.severity), _CONFIDENCES.index(cause.confidence)
    return cause.severity == "note", not is_proven, -cause.tokens, -severity, -confidence, -cause.logs


def _cause(rows: list[dict[str, Any]], reports: dict[str, str]) -> FleetCause:
    cost: dict[str, int] = {}
    for row in rows:
        cost[row["log"]] = cost.get(row["log"], 0) + row["tokens"]
    worst = min(cost, key=lambda log: (-cost[log], log))
    do = max((row for row in rows if row["log"] == worst), key=lambda row: row["tokens"])["do"]
    return FleetCause(
        rows[0]["code"], rows[0]["name"], _SEVERITIES[max(row["severity"] for row in rows)], len(cost),
        sum(row["requests"] for row in rows), sum(row["tokens"] for row in rows),
        sum(row["ns"] for row in rows) / _NS if any(row["timed"] for row in rows) else None,
        worst, reports.get(worst), _CONFIDENCES[max(row["confidence"] for row in rows)],
        do["fix"], do["commands"] or [],
    )  # fmt: skip


def _cause_builds(findings: list[dict[str, Any]]) -> list[FleetCauseGroup]:
    groups: dict[tuple[str, str, str | None], list[dict[str, Any]]] = {}
    for row in findings:
        groups.setdefault((row["code"], row["name"], _build_name(row)), []).append(row)
    found = [
        FleetCauseGroup(
            *key, len({row["log"] for row in rows}), sum(r["requests"] for r in rows), sum(r["tokens"] for r in rows)
        )
        for key, rows in groups.items()
    ]
    return _costliest(found)


def _cause_clients(paths: Sequence[str], names: dict[str, str]) -> list[FleetCauseGroup]:
    """Return rules that fired on requests of each client; what a request cost is that of all its causes."""
    import polars as pl

    groups: dict[tuple[str, str], FleetCauseGroup] = {}
    asked = ["_file", "client", "codes", "avoidable_tokens"]

    def sums(frame: pl.LazyFrame) -> pl.LazyFrame:
        fired = frame.select(asked).filter(pl.col("client").is_not_null()).explode("codes").drop_nulls("codes")
        return fired.group_by("client", "codes").agg(
            pl.len(), pl.col("avoidable_tokens").cast(pl.Int128).sum(), pl.col("_file").n_unique().alias("logs")
        )

    for row in _collected(paths, REQUESTS, sums):
        code = row["codes"]
        group = groups.setdefault(
            (code, row["client"]), FleetCauseGroup(code, names.get(code, ""), row["client"], 0, 0, 0)
        )
        group.logs += row["logs"]
        group.requests += row["len"]
        group.tokens += row["avoidable_tokens"] or 0
    return _costliest(list(groups.values()))


def _costliest(found: list[FleetCauseGroup]) -> list[FleetCauseGroup]:
    return sorted(found, key=lambda g: (-g.tokens, -g.requests, g.code, str(g.group)))[:_GROUPS]
