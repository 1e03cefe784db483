"""``cachedoctor export``: the requests of logs as a table. Knows arguments; knows no column."""

from __future__ import annotations

from typing import Annotated

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.options import MaxUnpacked, Quiet
from cachedoctor.cli.progress import Progress


def export(
    logs: Annotated[list[str], typer.Argument(metavar="LOG", help="Logs of one server; - is standard input.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Table to write: .parquet, .csv or .ndjson.")
    ],
    build: Annotated[
        int | None, typer.Option(parser=terminal.build_number, metavar="N", help="Build of llama.cpp, when unknown.")
    ] = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per request: token counts, slot choice, outcome, findings.

    Columns are those of "requests" in the JSON report (docs/usage.md). Exit status: 0 written; 2 wrong usage or an
    unreadable input; 3 nothing in the input was recognised.
    """
    from cachedoctor.doctor.analyzer import Analyzer
    from cachedoctor.doctor.run import feed_all
    from cachedoctor.frames import write
    from cachedoctor.sources.unpack import MAX_BYTES

    analyzer, progress = Analyzer(build), Progress(logs, quiet)
    try:
        errors = feed_all(analyzer, logs, max_unpacked or MAX_BYTES, progress.read)
    finally:
        progress.close()
    report = analyzer.finish()
    for error in errors:
        terminal.complain(error.message, error.hint)
    recognised = any(i.recognised for i in report.inputs)
    if recognised:
        write(report.requests.lines(), output)
    elif not errors:
        terminal.complain("nothing in the input was recognised as a log of llama-server", "nothing was written")
    raise typer.Exit(2 if errors else 0 if recognised else 3)
