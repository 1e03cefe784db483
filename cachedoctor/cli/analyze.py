"""``cachedoctor analyze``: logs in, report or table out; or a JSON report in another format."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args

import msgspec
import typer

from cachedoctor.cli import counters, settings, terminal
from cachedoctor.cli.common_options import (
    EVIDENCE,
    INPUT,
    OUTPUT,
    Bodies,
    ColorOption,
    FailOn,
    Gate,
    HashClients,
    MaxUnpacked,
    Output,
    Quiet,
    RequestSelection,
    ServerInfo,
    Unknown,
    Verbose,
    Width,
    given_or_piped,
    option,
    refuse_alone,
    refuse_others,
    refuse_page,
)
from cachedoctor.cli.ending import FAULT, FOUND, NOTHING, Interrupts, named
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.cli.started import started
from cachedoctor.cli.table_output import TableFormat, TableJob, TableName, table_format, write_table
from cachedoctor.knowledge.engines import EITHER, LABELS_EXAMPLE
from cachedoctor.report.base import FormatName

if TYPE_CHECKING:
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.redact.redact import UnknownLines
    from cachedoctor.inputs.metrics.dump import Dump


_OF_REPORT = {
    "logs", "format", "output", "verbose", "launcher", "color", "width", "config", "no_config", "quiet",
    *RequestSelection._fields,
}  # fmt: skip
"""Options that go with a JSON report."""


class RecordedBeside(NamedTuple):
    """What was recorded beside a log, without prompts."""

    slots: Annotated[
        list[str] | None,
        option("--slots", "/slots dump taken at the same time as the log; repeatable.", "FILE", EVIDENCE),
    ] = None
    metrics: Annotated[
        list[str] | None,
        option(
            "--metrics",
            f"Dump of /metrics of {EITHER}; repeatable, e.g. before and after the requests.",
            "FILE",
            EVIDENCE,
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        option(
            "--prometheus",
            f"Read the counters of {EITHER} from Prometheus; --since 2h sets how far back (default 1h).",
            "URL",
            EVIDENCE,
        ),
    ] = None
    match: Annotated[
        str | None,
        option("--match", f"With --prometheus: read only these series, e.g. {LABELS_EXAMPLE}.", "LABELS", EVIDENCE),
    ] = None
    responses: Annotated[
        list[str] | None,
        option("--responses", "Saved, unmodified server responses with usage; repeatable.", "FILE", EVIDENCE),
    ] = None
    kv_events: Annotated[
        list[str] | None,
        option("--kv-events", f"KV events of {EITHER}, written by watch --kv-events; repeatable.", "FILE", EVIDENCE),
    ] = None

    @property
    def files(self) -> list[str]:
        """Files of measurements."""
        return [*(self.metrics or []), *(self.responses or []), *(self.kv_events or [])]


def analyze(
    ctx: typer.Context,
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOG",
            help="Logs of one server, or a folder of them, plain or gz, xz, bz2, zst; - is standard input. Or a JSON "
            "report of analyze.",
        ),
    ] = None,
    format: Annotated[
        Literal[FormatName, TableFormat],
        option(
            "--format -f",
            f"{', '.join(get_args(FormatName))}; tables: {', '.join(get_args(TableFormat))}.  "
            "[default: from FILE, else text]",
            "NAME",
            show_default=False,
        ),
    ] = "text",
    output: Output = None,
    table: Annotated[
        TableName | None,
        option(
            "--table",
            "Rows of the table: requests, samples (vLLM statistics lines), batches (SGLang prefill batches) or "
            "events (recognised lines).  [default: requests]",
            None,
            OUTPUT,
        ),
    ] = None,
    follow: Annotated[
        str | None, option("--follow", "Read FILE and all lines appended to it, until Ctrl-C.", "FILE")
    ] = None,
    *,
    server: ServerInfo,
    fail_on: FailOn = "never",
    gate: Gate,
    part: RequestSelection,
    unknown: Unknown = False,
    evidence: RecordedBeside,
    bodies: Bodies,
    hash_clients: HashClients = False,
    jobs: Annotated[
        int,
        option("--jobs -j", "Number of processes for several or large files; 0: one per core.", "N", INPUT, min=0),
    ] = 0,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """Show why prompts were recomputed, and how to fix it.

    With -o requests.csv (.parquet, .ndjson), analyze writes a table with one row per request, measurement or line.
    docs/tables.md describes the columns; parquet needs the pip extra tables (polars). Given a JSON report instead of
    logs, analyze writes the report in another format.

    Exit status: 0 the analysis ran; 1 --fail-on was reached; 2 wrong usage, an unreadable input or an internal
    error; 3 nothing could be checked; 130 interrupted (the report covers the part read; no table is written).
    """
    as_table = table_format(ctx)
    chosen = settings.resolve(ctx, gate, but=() if as_table is None else ("format",))
    if not quiet:
        chosen.announce()
    if as_table is not None:
        raise typer.Exit(_table(ctx, logs, as_table, chosen, server, bodies, max_unpacked, quiet))
    stored = _stored(logs or [])
    if stored is not None:
        refuse_others(ctx, _OF_REPORT, f"a JSON report ({stored})")
    counters.refuse_addresses(evidence.metrics or [])
    counters.check_prometheus(evidence.prometheus, evidence.match)
    start = started(server.cmdline, server.launcher)
    if not quiet:
        start.say_what_is_not_checked()
    prompt_files = [*(evidence.slots or []), *bodies.files]
    beside = _beside(prompt_files, bodies.tokenizer, bodies.template, hashed=hash_clients)
    alone = bool(evidence.files or evidence.prometheus)
    paths, dumps = _without_dumps(_expanded(_paths(ctx, logs or [], follow, alone), quiet), quiet)
    asked: list[Dump] = []
    if evidence.prometheus is not None:
        lonely = not (paths or follow or evidence.files)
        asked = counters.prometheus_dumps(evidence.prometheus, part.since, evidence.match, alone=lonely)
        part = part._replace(since=None)
    from cachedoctor.cli.job import Job, render_report, run_job

    job = Job(
        paths,
        beside,
        _extra_inputs(evidence._replace(metrics=[*(evidence.metrics or []), *dumps]), asked, max_unpacked),
        follow,
        chosen,
        server.build,
        start.given,
        jobs,
        max_unpacked,
        quiet,
        part.wanted(chosen.format),
        start.told,
        _unknown_lines(chosen.format) if unknown else None,
    )
    spare_inputs(
        output, [*paths, follow, *prompt_files, bodies.tokenizer, bodies.template, *evidence.files, *dumps, chosen.file]
    )
    if not quiet and "-" in paths and terminal.typed():
        terminal.ask_for_paste()
    refuse_page(chosen.format, output)
    with Interrupts() as interrupts, Sink(output) as sink:
        look = msgspec.structs.replace(terminal.look(sink.path is not None, chosen.color, width), verbose=verbose)
        if stored is None:
            code = run_job(job, sink, look, interrupts, partial(refuse_others, ctx, _OF_REPORT))
        else:
            code = render_report(job, stored, None, sink, look)
        if evidence.prometheus is not None and not asked and code in (0, FOUND, NOTHING):
            code = FAULT
    raise typer.Exit(code)


def _table(
    ctx: typer.Context,
    logs: list[str] | None,
    format: TableFormat,
    chosen: settings.CommandSettings,
    server: ServerInfo,
    bodies: Bodies,
    max_unpacked: int | None,
    quiet: bool,
) -> int:
    """Write a table in place of a report."""
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    refuse_page(format, ctx.params["output"])
    paths = _expanded(_paths(ctx, logs or [], None, False), quiet)
    return write_table(
        TableJob(
            paths,
            ctx.params["output"],
            format,
            ctx.params["table"] or "requests",
            server.build,
            chosen.options,
            bodies,
            max_unpacked or MAX_BYTES,
            quiet,
            ReadProgress(paths, quiet),
        )
    )


def _stored(logs: list[str]) -> str | None:
    """The JSON report that was given in place of logs.

    Raises:
        CacheDoctorError: it was given with something else.
    """
    for path in logs:
        if not _begins_as_json(path):
            continue
        from cachedoctor.doctor.compare.reports import is_report
        from cachedoctor.model import CacheDoctorError

        if is_report(path):
            if len(logs) > 1:
                raise CacheDoctorError(f"{path}: a JSON report must be the only input", f"cachedoctor analyze {path}")
            return path
    return None


def _begins_as_json(path: str) -> bool:
    """Whether a file may be a JSON report: what tells reports from logs is imported only for such."""
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:  # whoever reads it says so
        return False


def _unknown_lines(format: FormatName) -> UnknownLines:
    if format not in ("text", "json"):
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError(f"--unknown: is not available with --format {format}", "give --format text or json")
    from cachedoctor.doctor.redact.redact import UnknownLines

    return UnknownLines()


def _beside(paths: list[str], tokenizer: str | None, template: str | None, *, hashed: bool) -> GivenPrompts | None:
    if not paths:
        refuse_alone(tokenizer, template)
        return None
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts

    return GivenPrompts(paths, tokenizer, template, hashed=hashed)


def _extra_inputs(evidence: RecordedBeside, asked: list[Dump], max_unpacked: int | None) -> ExtraInputs | None:
    if not evidence.files and not asked:
        return None
    from cachedoctor.doctor.analysis.run import read_extra_inputs
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    return read_extra_inputs(
        evidence.metrics or [], evidence.responses or [], max_unpacked or MAX_BYTES, evidence.kv_events or [], asked
    )


def _paths(ctx: typer.Context, logs: list[str], follow: str | None, alone: bool) -> list[str]:
    """Logs to be read; ``alone``: what else was given needs none."""
    if follow is not None:
        if logs:
            ctx.fail("give either logs or --follow FILE, not both")
        return []
    if alone and not logs:
        return []
    return logs or ["-" if terminal.typed() else given_or_piped(ctx, None)]


def _expanded(paths: list[str], quiet: bool) -> list[str]:
    """Put the logs of a folder in its place; the others there that are called logs are named."""
    found = []
    for path in paths:
        if path == "-" or not os.path.isdir(path):
            found.append(path)
            continue
        from cachedoctor.doctor.tables.tables import logs_in

        inside, others = logs_in(path)
        found += inside or [path]  # whoever reads it says that it is a folder
        if inside and others and not quiet:
            terminal.complain(
                f"{path}: files without server log lines were not read: {named(others)}",
                "give the names of these files to read them",
                "note",
            )
    return found


def _without_dumps(paths: list[str], quiet: bool) -> tuple[list[str], list[str]]:
    """Tell dumps of /metrics that were given as logs from the logs; they are named."""
    dumps = counters.dumps_in(paths)
    if dumps and not quiet:
        terminal.complain(f"{named(dumps)}: a dump of /metrics, read as with --metrics", kind="note")
    return [path for path in paths if path not in dumps], dumps
