"""``cachedoctor report``: a JSON report in another format, without its log. Knows arguments; knows no format."""

from __future__ import annotations

from typing import Annotated

import typer

from cachedoctor.cli import settings, terminal
from cachedoctor.cli.common_options import (
    ColorOption,
    Config,
    Launcher,
    NoConfig,
    Since,
    Slots,
    Tasks,
    Until,
    Verbose,
    Width,
    refuse_page,
    wanted_requests,
)
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.report.base import FormatName, write


def report(
    ctx: typer.Context,
    stored: Annotated[str, typer.Argument(metavar="REPORT", help="JSON report of analyze; - is standard input.")],
    format: Annotated[FormatName, typer.Option("--format", "-f", help="Format to write.")] = "text",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE.")
    ] = None,
    verbose: Verbose = False,
    task: Tasks = None,
    slot: Slots = None,
    since: Since = None,
    until: Until = None,
    launcher: Launcher = None,
    color: ColorOption = "auto",
    width: Width = None,
    config: Config = None,
    no_config: NoConfig = False,
) -> None:
    """Write a JSON report in another format; the log is not needed.

    Exit status: 0 written; 2 wrong usage, or no report of this version.
    """
    from cachedoctor.doctor.compare.reports import read

    chosen = settings.resolve(ctx, config, no_config)
    spare_inputs(output, [stored])
    refuse_page(chosen.format, output)
    wanted = wanted_requests(task, slot, since, until, chosen.format)
    found = read(stored)
    if launcher is not None or wanted is not None:
        from cachedoctor.doctor.analysis.filtering import shown_part
        from cachedoctor.doctor.fixing.fixes import Told

        found = shown_part(found, wanted, Told(launcher))
    with Interrupts(), Sink(output) as sink, sink.writing() as out:
        look = terminal.look(sink.path is not None, chosen.color, width)._replace(verbose=verbose)
        write(chosen.format, found, out, look)
