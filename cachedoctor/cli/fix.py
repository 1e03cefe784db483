"""``cachedoctor fix``: what to change, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import OUTPUT, LauncherName, ServerInfo, given_or_piped, option
from cachedoctor.cli.ending import FAULT, NOTHING, UNWRITTEN, Interrupts, named
from cachedoctor.cli.sink import Sink
from cachedoctor.cli.started import started
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.model import Fix, GivenOption, Report


def fix(
    ctx: typer.Context,
    log: Annotated[
        str | None,
        typer.Argument(metavar="LOG|REPORT", help="A log, or an analyze JSON report; - is standard input."),
    ] = None,
    *,
    server: ServerInfo,
    file: Annotated[
        str | None, option("--file", "File that starts the server: compose.yaml, unit, script ...", "FILE", OUTPUT)
    ] = None,
    service: Annotated[
        str | None, option("--service", "The service, container or model in that file.", "NAME", OUTPUT)
    ] = None,
    format: Annotated[Literal["text", "json"], option("--format -f", "Format of the fix.", None, OUTPUT)] = "text",
) -> None:
    """Print the fix, written for your launcher, or as a patch with --file.

    The command changes no file.

    The fixes of all findings of a server are merged into one set of options. Client changes come first, because
    they need no server restart.

    Exit status: 0 printed, also if there is nothing to change; 2 wrong usage, an unreadable input, or a file
    that does not start the server; 3 nothing in the input was recognised.
    """
    from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
    from cachedoctor.report.forms import fix_forms

    start = started(server.cmdline, server.launcher)
    path = given_or_piped(ctx, log)
    with Interrupts():
        report = _report(path, server.build, start.given)
        if not any(info.recognised for info in report.inputs):
            terminal.complain(f"the input does not look like a log of {SERVERS}", UNWRITTEN)
            raise typer.Exit(NOTHING)
        told = StartInfo(start.launcher, start.line)
        every = fixes(report.findings, report.sessions, report.inputs, told, whole=True, replayed=report.fix)
        found = [one for one in every if one.codes or one.notes]
        if file is not None:
            raise typer.Exit(_patch(found, report, file, server.launcher, service))
        if not found:
            what = "found nothing to change"
            if report.findings:
                what = f"no server option fixes these findings: {_named(report)}"
            terminal.complain(what, f"cachedoctor analyze {path} shows the fixes", "note")
        with Sink(None) as sink, sink.writing() as out:
            out.write(fix_forms.json(found) if format == "json" else fix_forms.text(found).encode())


def _report(path: str, build: int | None, given: list[GivenOption]) -> Report:
    from cachedoctor.doctor.compare.reports import is_report, read

    if is_report(path):
        return read(path)
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.run import feed_all
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    analyzer = Analyzer(build, given=given, keeps_requests=False)
    errors = feed_all(analyzer, [path], MAX_BYTES)
    report = analyzer.finish(False)
    for error in errors:
        terminal.complain(error.message, error.hint)
    if errors:
        raise typer.Exit(FAULT)
    return report


def _named(report: Report) -> str:
    """The first findings of a report by code and name, each once."""
    return named(list(dict.fromkeys(f"{finding.code} {finding.name}" for finding in report.findings)))


def _patch(found: list[Fix], report: Report, file: str, launcher: LauncherName | None, service: str | None) -> int:
    from cachedoctor.doctor.fixing.patches import patch

    text, notes = patch(found, report.sessions, file, launcher, service)
    for note in notes:
        terminal.complain(note, kind="note")
    with Sink(None) as sink, sink.writing() as out:
        out.write(text.encode("utf-8", "surrogateescape"))
    return 0
