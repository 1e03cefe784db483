"""``cachedoctor analyze``: logs in, report out.

Knows the order of the steps and the exit statuses. Knows no log line.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cachedoctor.cli import settings, terminal
from cachedoctor.cli.interrupts import Interrupts
from cachedoctor.cli.live import Live
from cachedoctor.cli.options import Config, FailOn, Ignore, MaxUnpacked, NoConfig, Select
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.report.base import FORMATS, FormatName, Look, write

if TYPE_CHECKING:
    from cachedoctor.doctor.analyzer import Analyzer
    from cachedoctor.doctor.part import Part
    from cachedoctor.doctor.prompts import Prompts
    from cachedoctor.model import Given, InputInfo, Report
    from cachedoctor.sources.base import SourceError

_INTERRUPTED, _FAULT, _NOTHING, _FOUND = 130, 2, 3, 1
_PIPE = "llama-server logs to standard error: llama-server ... 2>&1 | cachedoctor analyze -"


class _Job(NamedTuple):
    paths: list[str]
    prompts: Prompts | None
    follow: str | None
    settings: settings.Settings
    build: int | None
    given: list[Given]
    jobs: int
    max_unpacked: int | None


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
    build: Annotated[
        int | None,
        typer.Option(
            parser=terminal.build_number, metavar="N", help="Build of llama.cpp, when the log does not say it."
        ),
    ] = None,
    cmdline: Annotated[
        str | None,
        typer.Option(
            "--cmdline", metavar="'llama-server ...'", help="What started the server; its options are checked."
        ),
    ] = None,
    fail_on: FailOn = "never",
    select: Select = None,
    ignore: Ignore = None,
    slots: Annotated[
        list[str] | None, typer.Option("--slots", metavar="FILE", help="/slots dump made beside the log; repeatable.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option("--prompts", metavar="DIR", help="Directory that --log-prompts-dir wrote.")
    ] = None,
    requests: Annotated[
        str | None, typer.Option("--requests", metavar="FILE", help="JSONL of the client's request bodies, in order.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="FILE|URL", help="Makes the match of prompts exact; see diff.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", metavar="FILE", help="Chat template for request bodies; see diff.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=0, metavar="N", help="Processes that read several or large files; 0: one per core."
        ),
    ] = 1,
    max_unpacked: MaxUnpacked = None,
    color: Annotated[terminal.Color, typer.Option(help="Colours; auto also heeds NO_COLOR and FORCE_COLOR.")] = "auto",
    width: Annotated[
        int | None, typer.Option(min=20, metavar="N", help="Columns of the text report.  [default: the terminal's]")
    ] = None,
    config: Config = None,
    no_config: NoConfig = False,
) -> None:
    """Say why prompts were recomputed, and what fixes it.

    Exit status: 0 the analysis ran; 1 --fail-on was reached; 2 wrong usage, an unreadable input or an internal error;
    3 nothing in the input was recognised; 130 interrupted (the report covers what was read).
    """
    chosen = settings.resolve(ctx, config, no_config)
    beside = _beside([*(slots or []), *filter(None, (prompts, requests))], tokenizer, template)
    job = _Job(
        _paths(ctx, logs or [], follow),
        beside,
        follow,
        chosen,
        build,
        _given(cmdline),
        jobs or os.cpu_count() or 1,
        max_unpacked,
    )
    spare_inputs(output, [*job.paths, *([follow] if follow else [])])
    with Interrupts() as interrupts, Sink(output) as sink:
        look = terminal.look(sink.path is not None, chosen.color, width)
        status = _run(job, sink, look, interrupts)
    raise typer.Exit(status)


def _beside(paths: list[str], tokenizer: str | None, template: str | None) -> Prompts | None:
    if not paths:
        return None
    from cachedoctor.doctor.prompts import Prompts

    return Prompts(paths, tokenizer, template)


def _given(line: str | None) -> list[Given]:
    if line is None:
        return []
    from cachedoctor.knowledge.cmdline import parse

    return parse(line)


def _paths(ctx: typer.Context, logs: list[str], follow: str | None) -> list[str]:
    if follow is not None:
        if logs:
            ctx.fail("give either logs or --follow FILE, not both")
        return []
    if logs:
        return logs
    if terminal.piped():
        return ["-"]
    typer.echo(ctx.get_help(), err=True)
    raise typer.Exit(_FAULT)


def _run(job: _Job, sink: Sink, look: Look, interrupts: Interrupts) -> int:
    live = Live(sink, look) if _is_live(job, sink) else None
    analyzer = _stepwise(job, live, interrupts)
    errors, interrupted = _feed(job, analyzer)
    written = False
    try:
        # Who interrupts for the second time does not want to wait for the report.
        with contextlib.nullcontext() if interrupted else interrupts.held():
            report = analyzer.finish(interrupted)
            _write(report, job, sink, look)
            written = True
    except KeyboardInterrupt:
        if not written:
            raise
        interrupted = True
    if job.prompts is not None and job.prompts.matched < len(job.prompts):
        found = f"{job.prompts.matched} of {len(job.prompts)} prompts were matched to requests of the log"
        terminal.complain(found, "--tokenizer MODEL.gguf matches them by their exact length", "note")
    for error in errors:
        terminal.complain(error.message, error.hint)
    if analyzer.crashed:
        terminal.complain("a rule failed; the report names it", "this is a bug: please report it", "internal error")
    if interrupted:
        return _INTERRUPTED
    return _status(job, report, analyzer.crashed)


def _is_live(job: _Job, sink: Sink) -> bool:
    if job.settings.format != "text" or sink.path is not None:
        return False
    if job.follow is not None:
        return True
    from cachedoctor.sources.file import is_stream

    # `analyze < server.log` is a file like any other.
    return any(is_stream(0 if path == "-" else path) for path in job.paths)


def _stepwise(job: _Job, live: Live | None, interrupts: Interrupts) -> Analyzer:
    from cachedoctor.doctor.analyzer import Analyzer

    class Stepwise(Analyzer):
        """An interrupt never finds a step half done; live output hears of every step."""

        def open(self, path: str, *, continues: bool = False, line: int = 1) -> InputInfo:
            with interrupts.held():
                return super().open(path, continues=continues, line=line)

        def absorb(self, part: Part, path: str, line: int = 1) -> None:
            with interrupts.held():
                super().absorb(part, path, line)

        def close(self) -> None:
            with interrupts.held():
                super().close()

        def feed(self, chunk: bytes) -> list[str]:
            with interrupts.held():
                new = super().feed(chunk)
                if live is not None:
                    live.step(new, False, self.findings)
                return new

        def idle(self) -> list[str]:
            with interrupts.held():
                new = super().idle()
                if live is not None:
                    live.step(new, True, self.findings)
                return new

    keeps = FORMATS[job.settings.format].lists_requests
    return Stepwise(job.build, job.prompts, job.given, keeps_requests=keeps, options=job.settings.options)


def _feed(job: _Job, analyzer: Analyzer) -> tuple[list[SourceError], bool]:
    from cachedoctor.doctor.run import drive, feed_all
    from cachedoctor.sources.unpack import MAX_BYTES

    try:
        if job.follow is None:
            limit = job.max_unpacked or MAX_BYTES
            if job.jobs > 1 and job.prompts is None:  # bodies are matched to requests in their order
                from cachedoctor.doctor.parallel import Terms, feed_parallel, suits

                if suits(job.paths):
                    keeps = FORMATS[job.settings.format].lists_requests
                    terms = Terms(job.build, job.given, keeps, limit, job.settings.options)
                    return feed_parallel(analyzer, job.paths, job.jobs, terms), False
            return feed_all(analyzer, job.paths, limit), False
        from cachedoctor.sources.follow import FollowSource

        error = drive(analyzer, FollowSource(job.follow))
        return [] if error is None else [error], False
    except KeyboardInterrupt:
        return [], True


def _write(report: Report, job: _Job, sink: Sink, look: Look) -> None:
    if job.settings.format == "text" and not any(i.error is None or i.lines for i in report.inputs):
        return  # the errors on standard error say it all
    with sink.writing() as out:
        write(job.settings.format, report, out, look)


def _status(job: _Job, report: Report, crashed: bool) -> int:
    from cachedoctor.model import SEVERITY_ORDER

    if crashed or any(i.error is not None for i in report.inputs):
        return _FAULT
    if not any(i.recognised for i in report.inputs):
        empty = not any(i.bytes for i in report.inputs)
        what = "the input is empty" if empty else "nothing in the input was recognised as a log of llama-server"
        terminal.complain(what, _PIPE if empty else "cachedoctor explain unknown-format says what is expected")
        return _NOTHING
    if job.settings.fail_on == "never":
        return 0
    levels = [SEVERITY_ORDER[f.severity] for f in report.findings]
    return _FOUND if max(levels, default=-1) >= SEVERITY_ORDER[job.settings.fail_on] else 0
