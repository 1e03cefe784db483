"""``cachedoctor watch``: a log that is written, slot by slot, or KV events that are recorded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cachedoctor.cli import proxy_watch, settings, terminal
from cachedoctor.cli.common_options import ColorOption, Gate, ServerInfo, given_or_piped, option, refuse_others
from cachedoctor.cli.ending import INTERRUPTED, NOTHING, Interrupts, complain, conclude, has_content, status
from cachedoctor.cli.sink import Sink
from cachedoctor.cli.started import Started, started
from cachedoctor.knowledge.engines import EITHER
from cachedoctor.report.base import Appearance, write

if TYPE_CHECKING:
    from cachedoctor.cli.live import Lines
    from cachedoctor.cli.live_screen import Screen
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.inputs.sources.base import SourceError
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.model import AnalysisOptions, Report


KV_EVENTS = "KV events"


def watch(
    ctx: typer.Context,
    log: Annotated[
        str | None,
        typer.Argument(metavar="LOG", help="Server log, or output of cachedoctor proxy; - is standard input."),
    ] = None,
    *,
    server: ServerInfo,
    gate: Gate,
    color: ColorOption = "auto",
    kv_events: Annotated[
        list[str] | None,
        option(
            "--kv-events",
            f"Record KV events of {EITHER} from tcp://HOST:PORT into -o FILE; give one address per rank. At @ENDPOINT "
            "or tcp://*:PORT, watch listens and servers connect.",
            "ENDPOINT",
            KV_EVENTS,
        ),
    ] = None,
    replay: Annotated[
        list[str] | None,
        option(
            "--replay",
            "Address for requesting missed KV events (replay_endpoint); one per --kv-events.",
            "ENDPOINT",
            KV_EVENTS,
        ),
    ] = None,
    output: Annotated[
        str | None,
        option("--output -o", "With --kv-events: new file for the recording; - is standard output.", "FILE", KV_EVENTS),
    ] = None,
) -> None:
    """Show live how a server uses its cache: slots, reuse, findings.

    The log is read from its beginning, also across rotation and truncation, until q or Ctrl-C. At the end, watch
    prints the report. Arrow keys select a finding; ? explains the view. Without a terminal, watch prints a line for
    each finding and for each request that lost tokens.

    For output of cachedoctor proxy (--record FILE, or -f jsonl), watch shows a row per conversation with the change
    and its cost.

    With --kv-events, watch reads no log. watch then records KV events until Ctrl-C, as hashes without tokens or text,
    for analyze --kv-events. Recording needs the pip extra kv (pyzmq) and a server started with --kv-events-config.

    Exit status: as for analyze; 130 after Ctrl-C. Exit status with --kv-events: 0 recorded; 2 wrong usage, or the
    endpoint does not send KV events; 3 no event was received.
    """
    if kv_events:
        refuse_others(ctx, ("kv_events", "replay", "output"), "--kv-events, which records events and reads no log")
        raise typer.Exit(_record(kv_events, replay or [], output))
    if replay or output is not None:
        raise typer.BadParameter("--replay and --output need --kv-events")
    chosen = settings.resolve(ctx, gate)
    chosen.announce()
    from cachedoctor.doctor.analysis.run import begun_pipe

    path, start = given_or_piped(ctx, log), started(server.cmdline, server.launcher)
    start.say_what_is_not_checked()
    with Interrupts() as interrupts, Sink(None) as sink:
        look = terminal.look(False, chosen.color)
        pipe = begun_pipe(path)
        if not _is_pasted(path) and proxy_watch.is_of_proxy(path, pipe):
            refuse_others(ctx, ("log", "color", "config", "no_config"), "the output of a proxy")
            raise typer.Exit(proxy_watch.run(path, pipe, sink, look, interrupts))
        code = _run(path, pipe, server.build, start, chosen.options, sink, look, interrupts)
    raise typer.Exit(code)


def _record(endpoints: list[str], replay: list[str], output: str | None) -> int:
    """Record KV events until a signal comes; returns the exit status."""
    from cachedoctor.inputs.sources.kv_subscription import KvSubscription
    from cachedoctor.live.kv_recorder import KvRecorder, new_file
    from cachedoctor.model import CacheDoctorError

    if output is None:
        raise CacheDoctorError("--kv-events needs -o FILE, the file for the recording", "-o kv.jsonl")
    if replay and len(replay) != len(endpoints):
        raise CacheDoctorError("--replay: give one address per --kv-events, in the same order", "or none")
    with Interrupts() as interrupts, KvSubscription(endpoints, replay) as subscription, new_file(output) as out:
        recorder = KvRecorder(endpoints, out, _note)
        with interrupts.deferred() as stop:
            try:
                recorder.run(subscription, stop)
            finally:
                recorder.close()
    if not recorder.messages:
        config = """'{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}'"""
        terminal.complain("no KV event was received", f"vllm serve MODEL --kv-events-config {config}")
        return NOTHING
    missing = f"; {recorder.missing:,} were missed" if recorder.missing else ""
    _note(f"{recorder.messages:,} messages recorded{missing}", f"cachedoctor analyze server.log --kv-events {output}")
    return 0


def _note(message: str, hint: str) -> None:
    terminal.complain(message, hint, "note")


def _is_pasted(path: str) -> bool:
    return path == "-" and terminal.typed()


def _run(
    path: str,
    pipe: BegunSource | None,
    build: int | None,
    start: Started,
    options: AnalysisOptions,
    sink: Sink,
    look: Appearance,
    interrupts: Interrupts,
) -> int:
    from cachedoctor.cli.live import Stepwise

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


def _view(path: str, sink: Sink, look: Appearance, interrupts: Interrupts) -> Screen | Lines:
    if sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from cachedoctor.cli.live_screen import Screen

        return Screen(look, interrupts, keys=not _is_pasted(path))
    from cachedoctor.cli.live import Lines

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
