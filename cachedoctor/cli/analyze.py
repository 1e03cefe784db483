"""``cachedoctor analyze``: logs in, report out.

Knows the order of the steps and the exit statuses. Knows no log line.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cachedoctor.cli import settings, terminal
from cachedoctor.cli.asked_counters import asked, dumps_in, heard, is_address
from cachedoctor.cli.common_options import (
    COMMON,
    EVIDENCE,
    INPUT,
    Build,
    Cmdline,
    ColorOption,
    Config,
    FailOn,
    HashClients,
    Ignore,
    Launcher,
    MaxUnpacked,
    MinPromptTokens,
    ModelTokenizer,
    NoConfig,
    Prompts,
    Quiet,
    Requests,
    Select,
    Since,
    Slots,
    Tasks,
    Template,
    Unknown,
    Until,
    Verbose,
    WarnTokens,
    Width,
    given_or_piped,
    refuse_alone,
    refuse_page,
    wanted_requests,
)
from cachedoctor.cli.ending import FAULT, FOUND, INTERRUPTED, NOTHING, complain, conclude, has_content, status
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.live import FORMATS as LIVE_FORMATS
from cachedoctor.cli.live import Live
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.cli.started import started
from cachedoctor.knowledge.engines import EITHER, LABELS_EXAMPLE, SERVERS
from cachedoctor.report.base import FORMATS, FormatName, Look, write

if TYPE_CHECKING:
    from cachedoctor.cli.live import Stream
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.filtering import Wanted
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.polled_metrics import Heard
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import Told
    from cachedoctor.doctor.redact.unknown_lines import UnknownLines
    from cachedoctor.inputs.sources.base import SourceError
    from cachedoctor.model import CacheDoctorError, Given, Report


_NAMED = 3
"""Files that a message names."""


class _Job(NamedTuple):
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
            help="Logs of one server, or a folder of them, plain or gz, xz, bz2, zst; - is standard input.",
        ),
    ] = None,
    format: Annotated[
        FormatName,
        typer.Option(
            "--format", "-f", help="Format of the report, unless the ending of FILE names it.", rich_help_panel=COMMON
        ),
    ] = "text",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE.", rich_help_panel=COMMON),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Read FILE and what is appended to it, until Ctrl-C.", rich_help_panel=COMMON
        ),
    ] = None,
    build: Build = None,
    cmdline: Cmdline = None,
    launcher: Launcher = None,
    fail_on: FailOn = "never",
    select: Select = None,
    ignore: Ignore = None,
    min_prompt_tokens: MinPromptTokens = None,
    warn_tokens: WarnTokens = None,
    task: Tasks = None,
    slot: Slots = None,
    since: Since = None,
    until: Until = None,
    unknown: Unknown = False,
    slots: Annotated[
        list[str] | None,
        typer.Option(
            "--slots", metavar="FILE", help="/slots dump made beside the log; repeatable.", rich_help_panel=EVIDENCE
        ),
    ] = None,
    prompts: Prompts = None,
    requests: Requests = None,
    hash_clients: HashClients = False,
    tokenizer: ModelTokenizer = None,
    template: Template = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="FILE|URL",
            help=f"Dump of /metrics of {EITHER}, or where to ask for it; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=terminal.seconds,
            metavar="TIME",
            help="With --metrics URL and --for: ask so often.  [default: 10s]",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    length: Annotated[
        float | None,
        typer.Option(
            "--for",
            parser=terminal.seconds,
            metavar="TIME",
            help="With --metrics URL: ask for so long before the logs are read, e.g. 5m.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Ask Prometheus for the counters of {EITHER} since --since 2h (default 1h).",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS",
            help=f"With --prometheus: of these series, e.g. {LABELS_EXAMPLE}.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    responses: Annotated[
        list[str] | None,
        typer.Option(
            "--responses",
            metavar="FILE",
            help="Responses with usage, as the server sent them; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    kv_events: Annotated[
        list[str] | None,
        typer.Option(
            "--kv-events",
            metavar="FILE",
            help=f"KV events of {EITHER}, as record-kv wrote them; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
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
    config: Config = None,
    no_config: NoConfig = False,
) -> None:
    """Say why prompts were recomputed, and what fixes it.

    Exit status: 0 the analysis ran; 1 --fail-on was reached; 2 wrong usage, an unreadable input or an internal error;
    3 nothing could be checked; 130 interrupted (the report covers what was read).
    """
    chosen = settings.resolve(ctx, config, no_config)
    if not quiet:
        chosen.announce()
    asking = asked(metrics or [], every, length, prometheus, match, since)
    since = None if asking is not None and asking.prometheus is not None else since
    files = [path for path in metrics or [] if not is_address(path)]
    alone = bool(metrics or responses or kv_events or prometheus)
    bodies = [*(slots or []), *(prompts or []), *(requests or [])]
    beside = _beside(bodies, tokenizer, template, hashed=hash_clients)
    start = started(cmdline, launcher)
    if not quiet:
        start.say_what_is_not_checked()
    paths, dumps = _without_dumps(_expanded(_paths(ctx, logs or [], follow, alone), quiet), quiet)
    files += dumps
    counters = heard(asking, quiet, lonely=not (paths or follow or files or responses or kv_events))
    job = _Job(
        paths,
        beside,
        _extra_inputs(files, responses or [], kv_events or [], counters, max_unpacked),
        follow,
        chosen,
        build,
        start.given,
        jobs or os.cpu_count() or 1,
        max_unpacked,
        quiet,
        wanted_requests(task, slot, since, until, chosen.format),
        start.told,
        _unknown_lines(chosen.format) if unknown else None,
    )
    beside_paths = (*bodies, tokenizer, template)
    beside_files = (*files, *(responses or []), *(kv_events or []))
    spare_inputs(output, [*job.paths, follow, *beside_paths, *beside_files, chosen.file])
    if not quiet and "-" in job.paths and terminal.typed():
        terminal.ask_for_paste()
    refuse_page(chosen.format, output)
    with Interrupts() as interrupts, Sink(output) as sink:
        look = terminal.look(sink.path is not None, chosen.color, width)._replace(verbose=verbose)
        code = _run(job, sink, look, interrupts)
        if counters is not None and counters.silent and code in (0, FOUND, NOTHING):
            code = FAULT
    raise typer.Exit(code)


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


def _extra_inputs(
    metrics: list[str], responses: list[str], kv_events: list[str], counters: Heard | None, max_unpacked: int | None
) -> ExtraInputs | None:
    dumps = [] if counters is None else counters.dumps
    if not metrics and not responses and not kv_events and not dumps:
        return None
    from cachedoctor.doctor.analysis.run import read_extra_inputs
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    return read_extra_inputs(metrics, responses, max_unpacked or MAX_BYTES, kv_events, dumps)


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
    dumps = dumps_in(paths)
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


def _run(job: _Job, sink: Sink, look: Look, interrupts: Interrupts) -> int:
    from cachedoctor.cli.stepwise import Stepwise
    from cachedoctor.doctor.scratch import clear_folders

    stream = _stream(job, sink) if job.settings.format == "jsonl" else None
    # Lines that come one by one, and live ones, leave no place for it.
    silent = job.quiet or job.follow is not None or (stream is not None and sink.path is None)
    progress = Progress([] if job.follow else job.paths, silent)
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
        errors, interrupted = _feed(job, analyzer, progress, interrupts)
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


def _stream(job: _Job, sink: Sink) -> Stream:
    from cachedoctor.cli.live import Stream

    return Stream(sink)


def _is_live(job: _Job, sink: Sink) -> bool:
    if job.settings.format not in LIVE_FORMATS or sink.path is not None or job.wanted is not None:
        return False
    if job.follow is not None:
        return True
    from cachedoctor.inputs.sources.file import is_stream

    # `analyze < server.log` is a file like any other, and a paste is read to its end.
    return any(is_stream(0 if path == "-" else path) for path in job.paths if path != "-" or not terminal.typed())


def _feed(job: _Job, analyzer: Analyzer, progress: Progress, interrupts: Interrupts) -> tuple[list[SourceError], bool]:
    from cachedoctor.doctor.analysis.run import drive_followed, feed_all
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    try:
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


def _write(report: Report, job: _Job, sink: Sink, look: Look, live: Live | None) -> None:
    if not FORMATS[job.settings.format].always and not has_content(report):
        return
    with sink.writing() as out:
        if live is not None:
            live.end(report, out)
        else:
            write(job.settings.format, report, out, look)
