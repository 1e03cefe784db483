"""``cachedoctor analyze``: logs in, report or table out; or a JSON report in another format."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

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
    Part,
    Quiet,
    Server,
    Unknown,
    Verbose,
    Width,
    given_or_piped,
    refuse_alone,
    refuse_others,
    refuse_page,
)
from cachedoctor.cli.ending import FAULT, FOUND, INTERRUPTED, NOTHING, SERVERS, complain, conclude, has_content, status
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.cli.started import started
from cachedoctor.cli.table_output import TableFormat, TableJob, TableName, table_format, write_table
from cachedoctor.report.base import FORMATS, FormatName, Look, write

if TYPE_CHECKING:
    from cachedoctor.cli.live import Live, Stream
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.filtering import Wanted
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import Told
    from cachedoctor.doctor.redact.unknown_lines import UnknownLines
    from cachedoctor.inputs.metrics.dump import Dump
    from cachedoctor.inputs.sources.base import SourceError
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.model import CacheDoctorError, Given, Report


_NAMED = 3
"""Files that a message names."""
_HEAD = 1 << 13
"""Bytes of the standard input in which a JSON report names its schema."""
_OF_REPORT = {
    "logs", "format", "output", "verbose", "launcher", "color", "width", "config", "no_config", "quiet", *Part._fields,
}  # fmt: skip
"""Options that go with a JSON report."""


class Evidence(NamedTuple):
    """What was recorded beside a log, without prompts."""

    slots: Annotated[
        list[str] | None,
        typer.Option(
            "--slots", metavar="FILE", help="/slots dump made beside the log; repeatable.", rich_help_panel=EVIDENCE
        ),
    ] = None
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="FILE",
            help="Dump of /metrics of vLLM or SGLang; repeatable, e.g. before and after.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask Prometheus for the counters of vLLM or SGLang since --since 2h (default 1h).",
            rich_help_panel=EVIDENCE,
        ),
    ] = None
    match: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS", help="With --prometheus: of these series, e.g. 'job=\"vllm\"'.", rich_help_panel=EVIDENCE
        ),
    ] = None
    responses: Annotated[
        list[str] | None,
        typer.Option(
            "--responses",
            metavar="FILE",
            help="Responses with usage, as the server sent them; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None
    kv_events: Annotated[
        list[str] | None,
        typer.Option(
            "--kv-events",
            metavar="FILE",
            help="KV events of vLLM or SGLang, as watch --kv-events wrote them; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None

    @property
    def files(self) -> list[str]:
        """Files of measurements."""
        return [*(self.metrics or []), *(self.responses or []), *(self.kv_events or [])]


class Job(NamedTuple):
    """One analysis."""

    paths: list[str]
    prompts: GivenPrompts | None
    extras: ExtraInputs | None
    follow: str | None
    settings: settings.Settings
    build: int | None
    given: list[Given]
    jobs: int
    max_unpacked: int | None
    quiet: bool
    wanted: Wanted | None
    """Requests that are shown, None for all."""
    start: Told | None
    unknown: UnknownLines | None
    """Counts the lines that are not known, where that was asked for."""

    @property
    def lists_requests(self) -> bool:
        """Whether all requests must be kept."""
        return FORMATS[self.settings.format].lists_requests or self.wanted is not None


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
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help="text, concise, html, json, jsonl, sarif, markdown, github; tables: csv, parquet, ndjson, mooncake.  "
            "[default: by FILE, else text]",
            show_default=False,
        ),
    ] = "text",
    output: Output = None,
    table: Annotated[
        TableName | None,
        typer.Option(
            help="Rows of the table: requests, statistics lines (samples, vLLM), prefill batches (SGLang), or lines "
            "that are a known message (events).  [default: requests]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    follow: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read FILE and what is appended to it, until Ctrl-C.")
    ] = None,
    *,
    server: Server,
    fail_on: FailOn = "never",
    gate: Gate,
    part: Part,
    unknown: Unknown = False,
    evidence: Evidence,
    bodies: Bodies,
    hash_clients: HashClients = False,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            min=0,
            metavar="N",
            help="Processes that read several or large files; 0: one per core.",
            rich_help_panel=INPUT,
        ),
    ] = 1,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """Say why prompts were recomputed, and what fixes it.

    With -o requests.csv (.parquet, .ndjson): a table with a row per request, measurement or line; its columns are
    described in docs/tables.md, and parquet needs polars: pip install 'cachedoctor[tables]'. A JSON report in place of
    logs is written in another format.

    Exit status: 0 the analysis ran; 1 --fail-on was reached; 2 wrong usage, an unreadable input or an internal error;
    3 nothing could be checked; 130 interrupted (the report covers what was read, a table is not written).
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
    job = Job(
        paths,
        beside,
        _extra_inputs(evidence._replace(metrics=[*(evidence.metrics or []), *dumps]), asked, max_unpacked),
        follow,
        chosen,
        server.build,
        start.given,
        jobs or os.cpu_count() or 1,
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
        look = terminal.look(sink.path is not None, chosen.color, width)._replace(verbose=verbose)
        code = _run(ctx, job, sink, look, interrupts) if stored is None else _render(job, stored, None, sink, look)
        if evidence.prometheus is not None and not asked and code in (0, FOUND, NOTHING):
            code = FAULT
    raise typer.Exit(code)


def _table(
    ctx: typer.Context,
    logs: list[str] | None,
    format: TableFormat,
    chosen: settings.Settings,
    server: Server,
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
            Progress(paths, quiet),
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
                raise CacheDoctorError(f"{path}: a JSON report is given alone", f"cachedoctor analyze {path}")
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


def _render(job: Job, path: str, data: bytes | None, sink: Sink, look: Look) -> int:
    """Write a JSON report in another format; ``data``: its bytes, where they were read already."""
    from cachedoctor.doctor.compare.reports import read
    from cachedoctor.report.wire import stored

    found = read(path) if data is None else stored.read(data, path)
    if job.start is not None or job.wanted is not None:
        from cachedoctor.doctor.analysis.filtering import shown_part

        found = shown_part(found, job.wanted, job.start)
    with sink.writing() as out:
        write(job.settings.format, found, out, look)
    return 0


def _unknown_lines(format: FormatName) -> UnknownLines:
    if format not in ("text", "json"):
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError(f"--unknown: is not shown by --format {format}", "give --format text or json")
    from cachedoctor.doctor.redact.unknown_lines import UnknownLines

    return UnknownLines()


def _beside(paths: list[str], tokenizer: str | None, template: str | None, *, hashed: bool) -> GivenPrompts | None:
    if not paths:
        refuse_alone(tokenizer, template)
        return None
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts

    return GivenPrompts(paths, tokenizer, template, hashed=hashed)


def _extra_inputs(evidence: Evidence, asked: list[Dump], max_unpacked: int | None) -> ExtraInputs | None:
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
                f"{path}: no lines of a server, not read: {_named(others)}", "name them to read them", "note"
            )
    return found


def _without_dumps(paths: list[str], quiet: bool) -> tuple[list[str], list[str]]:
    """Tell dumps of /metrics that were given as logs from the logs; they are named."""
    dumps = counters.dumps_in(paths)
    if dumps and not quiet:
        terminal.complain(f"{_named(dumps)}: read as with --metrics: a dump of /metrics", kind="note")
    return [path for path in paths if path not in dumps], dumps


def _explained(error: CacheDoctorError) -> CacheDoctorError:
    """Say of a folder that it holds no log, and what would be taken for one; other errors stay."""
    from cachedoctor.inputs.sources.base import FolderError

    if not isinstance(error, FolderError):
        return error
    from cachedoctor.doctor.tables.tables import logs_in
    from cachedoctor.model import CacheDoctorError

    _, others = logs_in(error.path)
    named = f": {_named(others)}" if others else ""
    return CacheDoctorError(
        f"{error.path}: holds no log of {SERVERS}{named}",
        "taken are files with any name whose first lines are a server's; folders in it are not looked into",
    )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _run(ctx: typer.Context, job: Job, sink: Sink, look: Look, interrupts: Interrupts) -> int:
    from cachedoctor.cli.live import Live, Stepwise
    from cachedoctor.doctor.scratch import clear_folders

    stream = _stream(sink) if job.settings.format == "jsonl" else None
    # Lines that come one by one, and live ones, leave no place for it.
    silent = job.quiet or job.follow is not None or (stream is not None and sink.path is None)
    progress = Progress([] if job.follow else job.paths, silent)
    begun = _begun(job, progress)
    if begun is not None:
        from cachedoctor.doctor.compare.reports import begins_report

        if begins_report(begun.head(_HEAD, lambda: None)):
            refuse_others(ctx, _OF_REPORT, "a JSON report on the standard input")
            return _render(job, "-", b"".join(begun.chunks()), sink, look)
    live = Live(sink, look, job.settings.format, progress.hide) if _is_live(job, sink) else None
    hearers = [hearer for hearer in (progress, live, stream) if hearer is not None]
    listener = None if stream is None else stream.listener
    analyzer = Stepwise(
        interrupts,
        hearers,
        listener,
        job.build,
        job.prompts,
        job.given,
        keeps_requests=job.lists_requests,
        options=job.settings.options,
        extras=job.extras,
        unknown=job.unknown,
        told=job.start,
    )
    try:
        errors, interrupted = _feed(job, analyzer, begun, progress, interrupts)
    finally:
        progress.close()
    end = stream.close if stream is not None else lambda report: _write(report, job, sink, look, live)
    choose = partial(_chosen, wanted=job.wanted, start=job.start, unknown=job.unknown)
    report, interrupted = conclude(analyzer, interrupted, interrupts, end, choose)
    if not job.quiet and job.prompts is not None and job.prompts.matched < len(job.prompts):
        found = f"{job.prompts.matched} of {len(job.prompts)} prompts were matched to requests of the log"
        terminal.complain(found, "--tokenizer MODEL.gguf matches them by their exact length", "note")
    for note in job.prompts.notes if job.prompts is not None and not job.quiet else []:
        terminal.complain(note, kind="note")
    faults = [error for _, error in job.prompts.faults] if job.prompts else []
    complain([*map(_explained, errors), *faults], analyzer)
    clear_folders()
    return INTERRUPTED if interrupted else status(report, analyzer.crashed, job.settings.fail_on, analyzer.begin)


def _chosen(report: Report, wanted: Wanted | None, start: Told | None, unknown: UnknownLines | None) -> Report:
    """The report as it is to be shown; one of nothing is left as it is, and says so."""
    if wanted is not None and not any(info.recognised for info in report.inputs):
        wanted = None
    if wanted is not None:
        from cachedoctor.doctor.analysis.filtering import shown_part

        report = shown_part(report, wanted, start)
    if unknown is not None:
        unknown.close()  # an interrupt may have come before its end
        report.unknown = unknown.shapes()
    return report


def _begun(job: Job, progress: Progress) -> BegunSource | None:
    """What is piped in and may be a JSON report; of None and of what somebody types the beginning is not waited for."""
    if job.paths != ["-"] or job.follow is not None or terminal.typed():
        return None
    from cachedoctor.doctor.analysis.run import source_of
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    return BegunSource(source_of("-", job.max_unpacked or MAX_BYTES, progress.read))


def _stream(sink: Sink) -> Stream:
    from cachedoctor.cli.live import Stream

    return Stream(sink)


def _is_live(job: Job, sink: Sink) -> bool:
    if job.settings.format not in ("text", "concise") or sink.path is not None or job.wanted is not None:
        return False
    if job.follow is not None:
        return True
    from cachedoctor.inputs.sources.file import is_stream

    # `analyze < server.log` is a file like any other, and a paste is read to its end.
    return any(is_stream(0 if path == "-" else path) for path in job.paths if path != "-" or not terminal.typed())


def _feed(
    job: Job, analyzer: Analyzer, begun: BegunSource | None, progress: Progress, interrupts: Interrupts
) -> tuple[list[SourceError], bool]:
    from cachedoctor.doctor.analysis.run import drive, drive_followed, feed_all
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    try:
        if begun is not None:
            error = drive(analyzer, begun)
            return [] if error is None else [error], False
        if job.follow is None:
            limit = job.max_unpacked or MAX_BYTES
            # Bodies are matched to requests in their order, and events are told in theirs.
            if job.jobs > 1 and job.prompts is None and job.unknown is None and job.settings.format != "jsonl":
                from cachedoctor.doctor.analysis.parallel import Terms, feed_parallel, suits

                if suits(job.paths):
                    terms = Terms(job.build, job.given, job.lists_requests, limit, job.settings.options)
                    return feed_parallel(analyzer, job.paths, job.jobs, terms, progress.read), False
            return feed_all(analyzer, job.paths, limit, progress.read), False
        return drive_followed(analyzer, job.follow, interrupts.deferred())
    except KeyboardInterrupt:
        return [], True


def _write(report: Report, job: Job, sink: Sink, look: Look, live: Live | None) -> None:
    if not FORMATS[job.settings.format].always and not has_content(report):
        return
    with sink.writing() as out:
        if live is not None:
            live.end(report, out)
        else:
            write(job.settings.format, report, out, look)
