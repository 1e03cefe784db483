"""``cachedoctor watch``: a log that is written, slot by slot.

Knows arguments and the order of the steps; knows no layout.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cachedoctor.cli import proxy_watch, settings, terminal
from cachedoctor.cli.common_options import (
    Build,
    Cmdline,
    ColorOption,
    Config,
    Ignore,
    Launcher,
    MinPromptTokens,
    NoConfig,
    Select,
    WarnTokens,
    given_or_piped,
)
from cachedoctor.cli.ending import INTERRUPTED, complain, conclude, has_content, status
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.sink import Sink
from cachedoctor.cli.started import Started, started
from cachedoctor.report.base import Look, write

if TYPE_CHECKING:
    from cachedoctor.cli.live_screen import Screen
    from cachedoctor.cli.plain import Lines
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.inputs.sources.base import SourceError
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.model import Options, Report


def watch(
    ctx: typer.Context,
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="LOG", help="The log that the server writes, or what a proxy writes; - is standard input."
        ),
    ] = None,
    build: Build = None,
    cmdline: Cmdline = None,
    launcher: Launcher = None,
    select: Select = None,
    ignore: Ignore = None,
    min_prompt_tokens: MinPromptTokens = None,
    warn_tokens: WarnTokens = None,
    color: ColorOption = "auto",
    config: Config = None,
    no_config: NoConfig = False,
) -> None:
    """Show what a server does with its cache while it does it: slots, reuse, findings.

    The log is read from its beginning, and on through rotation and truncation, until q or Ctrl-C; then the report is
    printed. Arrows go through the findings, ? explains the view. Where the output is no terminal: a line for every
    request that lost tokens, and for every finding.

    Of what cachedoctor proxy writes (--record FILE, or -f jsonl) there is a row for each conversation: what changed in
    it, and what that cost.

    Exit status: as analyze; 130 after Ctrl-C.
    """
    chosen = settings.resolve(ctx, config, no_config)
    chosen.announce()
    from cachedoctor.doctor.analysis.run import begun_pipe

    path, start = given_or_piped(ctx, log), started(cmdline, launcher)
    start.say_what_is_not_checked()
    with Interrupts() as interrupts, Sink(None) as sink:
        look = terminal.look(False, chosen.color)
        pipe = begun_pipe(path)
        if not _is_pasted(path) and proxy_watch.is_of_proxy(path, pipe):
            _refuse(build, cmdline, launcher, select, ignore, min_prompt_tokens, warn_tokens)
            raise typer.Exit(proxy_watch.run(path, pipe, sink, look, interrupts))
        code = _run(path, pipe, build, start, chosen.options, sink, look, interrupts)
    raise typer.Exit(code)


def _is_pasted(path: str) -> bool:
    return path == "-" and terminal.typed()


def _refuse(*given: object) -> None:
    """Raise where options were given that go with logs only."""
    if any(one is not None and one != [] for one in given):
        from cachedoctor.model import CacheDoctorError

        hint = "without them: cachedoctor watch requests.jsonl"
        raise CacheDoctorError(
            "--build, --cmdline, --launcher, --select, --ignore and thresholds go with logs of a server", hint
        )


def _run(
    path: str,
    pipe: BegunSource | None,
    build: int | None,
    start: Started,
    options: Options,
    sink: Sink,
    look: Look,
    interrupts: Interrupts,
) -> int:
    from cachedoctor.cli.stepwise import Stepwise

    shown = _view(path, sink, look, interrupts)
    analyzer = shown.analyzer = Stepwise(
        interrupts, (shown,), shown.listener, build, None, start.given, options=options, told=start.told
    )
    errors, interrupted = _feed(analyzer, path, pipe, shown, interrupts)

    def end(report: Report) -> None:
        if has_content(report):
            with sink.writing() as out:
                write("text", report, out, terminal.fitted(look))

    report, interrupted = conclude(analyzer, interrupted, interrupts, end)
    complain(errors, analyzer)
    return INTERRUPTED if interrupted else status(report, analyzer.crashed, begin=analyzer.begin)


def _view(path: str, sink: Sink, look: Look, interrupts: Interrupts) -> Screen | Lines:
    if sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from cachedoctor.cli.live_screen import Screen

        return Screen(look, interrupts, keys=not _is_pasted(path))
    from cachedoctor.cli.plain import Lines

    return Lines(sink, look)


def _feed(
    analyzer: Analyzer, path: str, pipe: BegunSource | None, shown: Screen | Lines, interrupts: Interrupts
) -> tuple[list[SourceError], bool]:
    from cachedoctor.doctor.analysis.run import drive_growing

    try:
        with shown:
            return drive_growing(analyzer, path, pipe, interrupts.deferred())
    except KeyboardInterrupt:
        return [], True
