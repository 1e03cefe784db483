"""``cachedoctor export``: logs as a table of requests or of lines. Knows arguments; knows no column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from cachedoctor.cli import terminal, whatif_inputs
from cachedoctor.cli.common_options import Build, MaxUnpacked, ModelTokenizer, Quiet, Requests, Template
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING, UNWRITTEN
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.model import CacheDoctorError, Report

_Ending = Literal["parquet", "csv", "ndjson"]


class _Job(NamedTuple):
    paths: list[str]
    output: str
    table: str
    ending: _Ending
    build: int | None
    max_unpacked: int
    progress: Progress
    quiet: bool


def export(
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOG", help="Logs of one server, or JSON reports of analyze; - is standard input."),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Table to write: .parquet, .csv or .ndjson; - with -f."),
    ],
    table: Annotated[
        Literal["requests", "samples", "batches", "events"],
        typer.Option(
            help="One row per request, per statistics line (vLLM), per prefill batch (SGLang), or per line that is a "
            "known message."
        ),
    ] = "requests",
    format: Annotated[
        Literal["parquet", "csv", "ndjson", "mooncake"] | None,
        typer.Option(
            "--format",
            "-f",
            help="Format of the table, or mooncake: a trace for simulators of caches.  [default: by the name of FILE]",
        ),
    ] = None,
    requests: Requests = None,
    tokenizer: ModelTokenizer = None,
    template: Template = None,
    build: Build = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
) -> None:
    """Write a table: a row per request (token counts, slot choice, outcome, rules), per measurement, or per line.

    Columns are described in docs/tables.md. Parquet needs polars: pip install 'cachedoctor[tables]'. Exit status:
    0 written; 2 wrong usage or an unreadable input; 3 nothing in the input was recognised, and nothing was written;
    130 interrupted (FILE is not written).
    """
    from cachedoctor.inputs.sources.unpack import MAX_BYTES
    from cachedoctor.report.tables.table_writer import require_polars

    if format == "mooncake":
        spare_inputs(output, [*logs, *(requests or []), tokenizer, template])
        progress = Progress(logs, quiet)
        beside = whatif_inputs.Beside(None, requests, tokenizer, template, build, None, max_unpacked)
        raise typer.Exit(_trace(logs, output, quiet, progress, beside))
    if requests or tokenizer is not None or template is not None:
        raise typer.BadParameter("--requests, --tokenizer and --template go with --format mooncake")
    ending = _ending(output, format)
    if ending == "parquet":
        require_polars("parquet")
    progress = Progress(logs, quiet)
    job = _Job(logs, output, table, ending, build, max_unpacked or MAX_BYTES, progress, quiet)
    spare_inputs(output, logs)
    try:
        with Interrupts(), Sink(output) as sink:
            status = _events(job, sink) if table == "events" else _reported(job, sink)
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        job.progress.close()
    raise typer.Exit(status)


def _trace(logs: list[str], output: str, quiet: bool, progress: Progress, beside: whatif_inputs.Beside) -> int:
    """Write a trace, and say on the standard error what in it is not measured."""
    from cachedoctor.doctor.whatif import trace

    try:
        with Interrupts(), Sink(output) as sink:
            evidence = whatif_inputs.traffic(logs, progress, beside)
            progress.close()
            with sink.writing() as out:
                notes = trace.write(evidence, out)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        progress.close()
    for note in notes if not quiet else ():
        terminal.complain(note, "", "note")
    return 0


def _ending(output: str, format: _Ending | None) -> _Ending:
    """Know the format before a log is read: it may take minutes."""
    if format is not None:
        return format
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.report.tables.columns import ENDINGS

    for ending in ENDINGS:
        if output.lower().endswith("." + ending):
            return ending
    names = ", ".join(f".{ending}" for ending in ENDINGS)
    raise CacheDoctorError(f"{output}: unknown table format", f"end the name in {names}, or give --format")


def _reported(job: _Job, sink: Sink) -> int:
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
        analyzer = Analyzer(job.build)
        errors += feed_all(analyzer, logs, job.max_unpacked, job.progress.read)
        read.append(analyzer.finish())
    recognised = any(i.recognised for report in read for i in report.inputs)
    if recognised:
        with sink.writing() as out:
            wanted = TABLES[job.table]
            rows = tables.request_rows(read) if wanted is REQUESTS else tables.measured_rows(wanted, read)
            tables.write(wanted, rows, out, job.ending)
        _elsewhere(job, read)
    return _status(errors, recognised)


def _elsewhere(job: _Job, read: list[Report]) -> None:
    """Say which table has what the one that was asked for cannot have."""
    from cachedoctor.doctor.compare.reports import tables_of

    found = list(dict.fromkeys(name for report in read for name in tables_of(report)))
    if found and job.table not in found and not job.quiet:
        words = " or ".join(f"--table {name}" for name in found)
        terminal.complain(f"the table is empty: the input has no {job.table}", f"give {words}", "note")


def _events(job: _Job, sink: Sink) -> int:
    from itertools import chain

    from cachedoctor.doctor.compare import reports
    from cachedoctor.doctor.tables import tables
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.report.tables.columns import EVENTS

    stored = next(filter(reports.is_report, job.paths), None)
    if stored is not None:
        raise CacheDoctorError(f"{stored}: a report holds no lines of its log", "give the log for --table events")
    events = tables.Events(job.paths, job.max_unpacked, job.progress.read)
    rows = events.lines()
    first = next(rows, None)
    if first is None:  # an old table stays
        return _status(events.errors, False)
    with sink.writing() as out:
        tables.write(EVENTS, chain([first], rows), out, job.ending)
    return _status(events.errors, True)


def _status(errors: Sequence[CacheDoctorError], recognised: bool) -> int:
    for error in errors:
        terminal.complain(error.message, error.hint)
    if errors:
        return FAULT
    if not recognised:
        terminal.complain(f"nothing in the input was recognised as a log of {SERVERS}", UNWRITTEN)
    return 0 if recognised else NOTHING
