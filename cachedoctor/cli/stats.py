"""``cachedoctor stats``: sums over many logs. Knows arguments and exit statuses; knows no sum."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Build, ColorOption, MaxUnpacked, Quiet, Width, by_name
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING, UNWRITTEN, no_requests
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.doctor.tables.statistics import Gathering


class _By(StrEnum):
    """Typer reads a repeatable option from an enumeration only."""

    MODEL = "model"
    BUILD = "build"
    MEMORY = "memory"
    PATH = "path"
    ORIGIN = "origin"
    CLIENT = "client"
    ENDPOINT = "endpoint"
    HOUR = "hour"
    OUTCOME = "outcome"
    SLOT = "slot"
    TURN = "turn"


def stats(
    ctx: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Logs of any number of servers, JSON reports, parquet tables of export, folders of fleet; - is a log.",
        ),
    ],
    by: Annotated[
        list[_By] | None,
        typer.Option(help="Group by it; repeatable.  [default: build and model, where there are several]"),
    ] = None,
    format: Annotated[
        Literal["text", "json", "csv", "markdown"], typer.Option("--format", "-f", help="Format of the tables.")
    ] = "text",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the tables to FILE.")
    ] = None,
    build: Build = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """Sum up requests over many logs and servers: reuse, recomputed and lost tokens, time, speed.

    Every log is a server of its own; the rotations of one log belong together. Needs polars: pip install
    'cachedoctor[tables]'. Exit status: 0 written; 2 wrong usage or an unreadable input (the others are summed up);
    3 nothing in the inputs was recognised, or tells of reuse; 130 interrupted.
    """
    from cachedoctor.doctor.tables.statistics import Gathering
    from cachedoctor.inputs.sources.unpack import MAX_BYTES
    from cachedoctor.report.forms import stats_forms
    from cachedoctor.report.tables.table_writer import require_polars

    require_polars("stats")
    chosen = by_name(ctx, format, output, stats_forms.FORMATS)
    spare_inputs(output, inputs)
    progress = Progress(inputs, quiet)
    gathering = Gathering(inputs, build, max_unpacked or MAX_BYTES, progress.read)
    try:
        with Interrupts(), Sink(output) as sink:
            found = gathering.stats([kind.value for kind in by or []])
            progress.close()
            if gathering.recognised:
                with sink.writing() as out:
                    stats_forms.write(chosen, found, out, terminal.look(sink.path is not None, color, width))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.close()
    if gathering.measured and not (quiet and gathering.recognised):
        terminal.complain(*no_requests(gathering.measured), "note" if gathering.recognised else "error")
    raise typer.Exit(_status(gathering))


def _status(gathering: Gathering) -> int:
    for error in gathering.errors:
        terminal.complain(error.message, error.hint)
    if gathering.errors:
        return FAULT
    if not gathering.recognised and gathering.measured:
        return NOTHING
    if not gathering.recognised:
        terminal.complain(f"nothing in the inputs was recognised as a log of {SERVERS}", UNWRITTEN)
        return NOTHING
    return 0
