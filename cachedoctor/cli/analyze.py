"""``cachedoctor analyze``: logs in, report out.

Knows the order of the steps and the exit statuses. Knows no log line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cachedoctor.cli import settings, terminal
from cachedoctor.cli.common_options import (
    Build,
    Cmdline,
    ColorOption,
    Config,
    FailOn,
    Ignore,
    Launcher,
    LauncherName,
    MaxUnpacked,
    ModelTokenizer,
    NoConfig,
    Prompts,
    Quiet,
    Requests,
    Select,
    Template,
    Width,
    given_options,
    given_or_piped,
)
from cachedoctor.cli.ending import INTERRUPTED, complain, conclude, has_content, status
from cachedoctor.cli.interrupts import Interrupts
from cachedoctor.cli.live import FORMATS as LIVE_FORMATS
from cachedoctor.cli.live import Live
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.report.base import FORMATS, FormatName, Look, write

if TYPE_CHECKING:
    from cachedoctor.cli.stream import Stream
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import Told
    from cachedoctor.model import Given, Report
    from cachedoctor.sources.base import SourceError


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
    start: Told


def analyze(
    ctx: typer.Context,
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG", help="Logs of one server, plain or gz, xz, bz2, zst; - is standard input."),
    ] = None,
    format: Annotated[FormatName, typer.Option("--format", "-f", help="Format of the report.")] = "text",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE.")
    ] = None,
    follow: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read FILE and what is appended to it, until Ctrl-C.")
    ] = None,
    build: Build = None,
    cmdline: Cmdline = None,
    launcher: Launcher = None,
    fail_on: FailOn = "never",
    select: Select = None,
    ignore: Ignore = None,
    slots: Annotated[
        list[str] | None, typer.Option("--slots", metavar="FILE", help="/slots dump made beside the log; repeatable.")
    ] = None,
    prompts: Prompts = None,
    requests: Requests = None,
    tokenizer: ModelTokenizer = None,
    template: Template = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", metavar="FILE", help="Dump of /metrics of vLLM or SGLang; repeatable."),
    ] = None,
    responses: Annotated[
        list[str] | None,
        typer.Option("--responses", metavar="FILE", help="Responses with usage, as the server sent them; repeatable."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=0, metavar="N", help="Processes that read several or large files; 0: one per core."
        ),
    ] = 1,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
    color: ColorOption = "auto",
    width: Width = None,
    config: Config = None,
    no_config: NoConfig = False,
) -> None:
    """Say why prompts were recomputed, and what fixes it.

    Exit status: 0 the analysis ran; 1 --fail-on was reached; 2 wrong usage, an unreadable input or an internal error;
    3 nothing in the input was recognised; 130 interrupted (the report covers what was read).
    """
    chosen = settings.resolve(ctx, config, no_config)
    if not quiet:
        chosen.announce()
    beside = _beside([*(slots or []), *filter(None, (prompts, requests))], tokenizer, template)
    job = _Job(
        _paths(ctx, logs or [], follow, alone=bool(metrics or responses)),
        beside,
        _extra_inputs(metrics or [], responses or [], max_unpacked),
        follow,
        chosen,
        build,
        given_options(cmdline),
        jobs or os.cpu_count() or 1,
        max_unpacked,
        quiet,
        _start(launcher, cmdline),
    )
    beside_paths = (*(slots or []), prompts, requests, tokenizer, template, *(metrics or []), *(responses or []))
    spare_inputs(output, [*job.paths, follow, *beside_paths, chosen.file])
    if not quiet and "-" in job.paths and terminal.typed():
        terminal.ask_for_paste()
    with Interrupts() as interrupts, Sink(output) as sink:
        look = terminal.look(sink.path is not None, chosen.color, width)
        code = _run(job, sink, look, interrupts)
    raise typer.Exit(code)


def _start(launcher: LauncherName | None, line: str | None) -> Told:
    from cachedoctor.doctor.fixing.fixes import Told

    return Told(launcher, line)


def _beside(paths: list[str], tokenizer: str | None, template: str | None) -> GivenPrompts | None:
    if not paths:
        return None
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts

    return GivenPrompts(paths, tokenizer, template)


def _extra_inputs(metrics: list[str], responses: list[str], max_unpacked: int | None) -> ExtraInputs | None:
    if not metrics and not responses:
        return None
    from cachedoctor.doctor.analysis.run import read_extra_inputs
    from cachedoctor.sources.unpack import MAX_BYTES

    return read_extra_inputs(metrics, responses, max_unpacked or MAX_BYTES)


def _paths(ctx: typer.Context, logs: list[str], follow: str | None, alone: bool) -> list[str]:
    """Logs to be read; ``alone``: what else was given needs none."""
    if follow is not None:
        if logs:
            ctx.fail("give either logs or --follow FILE, not both")
        return []
    if alone and not logs:
        return []
    return logs or ["-" if terminal.typed() else given_or_piped(ctx, None)]


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
    lists = FORMATS[job.settings.format].lists_requests
    analyzer = Stepwise(
        interrupts,
        hearers,
        listener,
        job.build,
        job.prompts,
        job.given,
        keeps_requests=lists,
        options=job.settings.options,
        extras=job.extras,
    )
    try:
        errors, interrupted = _feed(job, analyzer, progress, interrupts)
    finally:
        progress.close()
    end = stream.close if stream is not None else lambda report: _write(report, job, sink, look, live)
    report, interrupted = conclude(analyzer, interrupted, interrupts, lambda report: end(_fitted(report, job.start)))
    if not job.quiet and job.prompts is not None and job.prompts.matched < len(job.prompts):
        found = f"{job.prompts.matched} of {len(job.prompts)} prompts were matched to requests of the log"
        terminal.complain(found, "--tokenizer MODEL.gguf matches them by their exact length", "note")
    complain([*errors, *(error for _, error in job.prompts.faults)] if job.prompts else errors, analyzer)
    clear_folders()
    return INTERRUPTED if interrupted else status(report, analyzer.crashed, job.settings.fail_on, analyzer.begin)


def _fitted(report: Report, start: Told) -> Report:
    """The report with its fixes in the form of what was said to start the server."""
    if start != (None, None):
        from cachedoctor.doctor.fixing.fixes import fixes
        from cachedoctor.report.secrets import hidden

        if start.line is not None and hidden(start.line) != start.line:
            start = start._replace(line=None)  # with parts hidden it could not be pasted; `fix` prints it whole
        report.fix = fixes(report.findings, report.sessions, report.inputs, start)
    return report


def _stream(job: _Job, sink: Sink) -> Stream:
    from cachedoctor.cli.stream import Stream

    return Stream(sink)


def _is_live(job: _Job, sink: Sink) -> bool:
    if job.settings.format not in LIVE_FORMATS or sink.path is not None:
        return False
    if job.follow is not None:
        return True
    from cachedoctor.sources.file import is_stream

    # `analyze < server.log` is a file like any other, and a paste is read to its end.
    return any(is_stream(0 if path == "-" else path) for path in job.paths if path != "-" or not terminal.typed())


def _feed(job: _Job, analyzer: Analyzer, progress: Progress, interrupts: Interrupts) -> tuple[list[SourceError], bool]:
    from cachedoctor.doctor.analysis.run import drive_followed, feed_all
    from cachedoctor.sources.unpack import MAX_BYTES

    try:
        if job.follow is None:
            limit = job.max_unpacked or MAX_BYTES
            # Bodies are matched to requests in their order, and events are told in theirs.
            if job.jobs > 1 and job.prompts is None and job.settings.format != "jsonl":
                from cachedoctor.doctor.parallel.parallel import Terms, feed_parallel, suits

                if suits(job.paths):
                    keeps = FORMATS[job.settings.format].lists_requests
                    terms = Terms(job.build, job.given, keeps, limit, job.settings.options)
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
