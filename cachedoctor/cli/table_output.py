"""Tables that ``analyze`` writes in place of a report: requests, measurements or lines, and traces for simulators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast, get_args

import msgspec
import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Bodies, refuse_others
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING, UNWRITTEN, Interrupts
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.model import AnalysisOptions, CacheDoctorError, Report
    from cachedoctor.report.tables.columns import Ending

TableFormat = Literal["csv", "parquet", "ndjson", "mooncake"]
TableName = Literal["requests", "samples", "batches", "events"]
_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
_ENDINGS = _FORMATS[:3]
_OPTIONS = {
    "logs", "format", "output", "table", "build", "max_unpacked", "quiet", "select", "ignore", "config", "no_config",
}  # fmt: skip
_BODIES = set(Bodies._fields)


class TableJob(msgspec.Struct, frozen=True):
    """What is written."""

    paths: list[str]
    """Logs and JSON reports."""
    output: str | None
    format: TableFormat
    table: TableName
    build: int | None
    options: AnalysisOptions
    bodies: Bodies
    max_unpacked: int
    quiet: bool
    progress: ReadProgress


def table_format(ctx: typer.Context) -> TableFormat | None:
    """Return the format of the table that ``analyze`` was asked for, None for a report.

    Raises:
        CacheDoctorError: ``--table`` is given and the format is that of a report.
    """
    from cachedoctor.model import CacheDoctorError

    format, output, source = ctx.params["format"], ctx.params["output"] or "", ctx.get_parameter_source("format")
    if source is not None and source.name == "COMMANDLINE":
        found = format if format in _FORMATS else None
    else:
        found = next((ending for ending in _ENDINGS if output.lower().endswith(f".{ending}")), None)
    if found is None and ctx.params["table"] is not None:
        raise CacheDoctorError(
            "--table: the output format is not a table format",
            "use an output name that ends in .csv, .parquet or .ndjson",
        )
    if found is not None:
        refuse_others(ctx, _OPTIONS | _BODIES if found == "mooncake" else _OPTIONS, f"a table ({found})")
    return cast(TableFormat, found)


def write_table(job: TableJob) -> int:
    """Write a table or a trace; returns the exit status."""
    from cachedoctor.report.tables.table_writer import require_polars

    spare_inputs(job.output, [*job.paths, *job.bodies.files, job.bodies.tokenizer, job.bodies.template])
    if job.format == "parquet":
        require_polars("parquet")
    try:
        with Interrupts(), Sink(job.output) as sink:
            if job.format == "mooncake":
                return _trace(job, sink)
            return _events(job, sink) if job.table == "events" else _reported(job, sink)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        job.progress.close()


def _trace(job: TableJob, sink: Sink) -> int:
    """Write a trace, and say on the standard error what in it is not measured."""
    from cachedoctor.doctor.whatif import trace
    from cachedoctor.doctor.whatif.evidence import Asking, gather_trace

    bodies = job.bodies
    asking = Asking(
        job.paths, bodies.files, bodies.tokenizer, bodies.template, job.build, max_unpacked=job.max_unpacked
    )
    evidence = gather_trace(asking, job.progress.read)
    job.progress.close()
    with sink.writing() as out:
        notes = trace.write(evidence, out)
    for note in notes if not job.quiet else ():
        terminal.complain(note, "", "note")
    return 0


def _reported(job: TableJob, sink: Sink) -> int:
    """Write requests, samples or batches, which reports have as well."""
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.run import feed_all
    from cachedoctor.doctor.compare import reports
    from cachedoctor.doctor.tables import tables
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.report.tables.columns import REQUESTS, TABLES

    errors: list[CacheDoctorError] = []
    read = []
    stored = [path for path in reports.distinct(job.paths) if reports.is_report(path)]
    for path in stored:
        try:
            read.append(reports.read(path, job.progress.read))
        except CacheDoctorError as error:
            errors.append(error)
    logs = [path for path in reports.distinct(job.paths) if path not in stored]
    if logs:
        analyzer = Analyzer(job.build, options=job.options)
        errors += feed_all(analyzer, logs, job.max_unpacked, job.progress.read)
        read.append(analyzer.finish())
    recognised = any(i.recognised for report in read for i in report.inputs)
    if recognised:
        with sink.writing() as out:
            wanted = TABLES[job.table]
            rows = tables.request_rows(read) if wanted is REQUESTS else tables.measured_rows(wanted, read)
            tables.write(wanted, rows, out, cast("Ending", job.format))
        _elsewhere(job, read)
    return _status(errors, recognised)


def _elsewhere(job: TableJob, read: list[Report]) -> None:
    """Say which table has what the one that was asked for cannot have."""
    from cachedoctor.doctor.compare.reports import tables_of

    found = list(dict.fromkeys(name for report in read for name in tables_of(report)))
    if found and job.table not in found and not job.quiet:
        words = " or ".join(f"--table {name}" for name in found)
        terminal.complain(f"the table is empty: the input has no {job.table}", f"give {words}", "note")


def _events(job: TableJob, sink: Sink) -> int:
    from itertools import chain

    from cachedoctor.doctor.compare import reports
    from cachedoctor.doctor.tables import tables
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.report.tables.columns import EVENTS

    stored = next(filter(reports.is_report, job.paths), None)
    if stored is not None:
        raise CacheDoctorError(
            f"{stored}: a report does not contain the lines of its log", "give the log for --table events"
        )
    events = tables.EventRows(job.paths, job.max_unpacked, job.progress.read)
    rows = events.lines()
    first = next(rows, None)
    if first is None:  # an old table stays
        return _status(events.errors, False)
    with sink.writing() as out:
        tables.write(EVENTS, chain([first], rows), out, cast("Ending", job.format))
    return _status(events.errors, True)


def _status(errors: Sequence[CacheDoctorError], recognised: bool) -> int:
    for error in errors:
        terminal.complain(error.message, error.hint)
    if errors:
        return FAULT
    if not recognised:
        terminal.complain(f"the input does not look like a log of {SERVERS}", UNWRITTEN)
    return 0 if recognised else NOTHING
