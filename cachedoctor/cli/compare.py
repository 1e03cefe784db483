"""``cachedoctor compare``: did a change help, and is that sure?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Build, Output, Quiet, by_name, option
from cachedoctor.cli.ending import FAULT, FOUND, INTERRUPTED, NOTHING, Interrupts, no_requests
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.model import Comparison

_UNLIKE = (
    "neither input has requests, and the inputs have no measurement of reuse in common",
    "give JSON reports of both, written by analyze with --responses or --metrics",
)


def compare(
    ctx: typer.Context,
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="Log, analyze JSON report, or fleet folder from before the change.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Log, report or folder from after the change.")],
    format: Annotated[Literal["text", "json", "markdown"], option("--format -f", "Format of the comparison.")] = "text",
    output: Output = None,
    fail_on: Annotated[
        Literal["worse"] | None,
        option("--fail-on", "Exit with 1 if reuse certainly fell, or an error or warning is certainly new."),
    ] = None,
    build: Build = None,
    quiet: Quiet = False,
) -> None:
    """Compare findings, reuse and time before and after a change, with confidence intervals.

    Exit status: 0 compared; 1 --fail-on was reached; 2 wrong usage or an unreadable input; 3 nothing was recognised
    in one input, or nothing is comparable; 130 interrupted.
    """
    from cachedoctor.doctor.compare import compare as comparing
    from cachedoctor.doctor.compare.reports import without_requests
    from cachedoctor.inputs.sources.unpack import MAX_BYTES
    from cachedoctor.report.forms import compare_forms

    chosen = by_name(ctx, format, output, compare_forms.FORMATS)
    spare_inputs(output, [before, after])
    progress = ReadProgress([before, after], quiet)
    try:
        with Interrupts(), Sink(output) as sink:
            reports = [comparing.report_of(path, build, MAX_BYTES, progress.read) for path in (before, after)]
            for path, report in zip((before, after), reports, strict=True):
                if not any(i.recognised for i in report.inputs):
                    what = f"{path}: does not look like a log of {SERVERS}"
                    terminal.complain(what, "give a log, or a JSON report as a file")
                    raise typer.Exit(NOTHING)
            progress.close()
            found = comparing.compare(reports[0], reports[1], (before, after))
            if found is None:
                bare = [path for path, report in zip((before, after), reports, strict=True) if without_requests(report)]
                terminal.complain(*(no_requests(bare) if len(bare) == 1 else _UNLIKE))
                raise typer.Exit(NOTHING)
            with sink.writing() as out:
                compare_forms.write(chosen, found, out, terminal.look(sink.path is not None))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.close()
    raise typer.Exit(_status(found, fail_on is not None))


def _status(found: Comparison, fails: bool) -> int:
    errors = [side for side in (found.before, found.after) if side.error is not None]
    for side in errors:
        terminal.complain(side.error or "", "the comparison covers only the part that was read")
    if errors:
        return FAULT
    new = any(
        c.change == "came" and c.sure and c.after is not None and c.after.severity != "note" for c in found.findings
    )
    return FOUND if fails and (new or found.verdict == "worse") else 0
