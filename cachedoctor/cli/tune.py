"""``cachedoctor tune``: which settings would have saved most, or what given ones would have reused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Bodies, Build, Cmdline, Output, Quiet, by_name, option
from cachedoctor.cli.ending import INTERRUPTED, Interrupts
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.cli.started import started
from cachedoctor.knowledge.engines import LIST

if TYPE_CHECKING:
    from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
    from cachedoctor.doctor.whatif.evidence import Asking, ServerTraffic
    from cachedoctor.report.base import Appearance

_Answer = TypeVar("_Answer")


def tune(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG|BODIES", help="Logs of one server, or JSONL of request bodies; - is a log on standard input."
        ),
    ],
    changes: Annotated[
        list[str] | None,
        option(
            "--set",
            "Replay with this server option, written without dashes: cache-ram=16384, parallel=4, build=9713; "
            "repeatable.",
            "NAME=VALUE",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        option(
            "--memory",
            "Limit on extra memory for all changes together, e.g. 24GiB.  [default: no limit]",
            "SIZE",
            parser=terminal.size,
        ),
    ] = None,
    ran: Annotated[
        list[str] | None,
        option(
            "--ran",
            "Server setting that the log does not show: an option without dashes, or memory=swa; repeatable.",
            "NAME=VALUE",
        ),
    ] = None,
    *,
    bodies: Bodies,
    responses: Annotated[
        list[str] | None,
        option("--responses", f"{LIST}: server responses with usage; repeatable.", "FILE"),
    ] = None,
    build: Build = None,
    cmdline: Cmdline = None,
    format: Annotated[Literal["text", "json"], option("--format -f", "Format of the result.")] = "text",
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Rank server settings by the prompt tokens and seconds that they would have saved, and merge the best.

    The output lists single changes first, and then the merged set as command-line options. A change is listed with its
    extra memory if the log shows memory sizes. Only gains above the replay's own error and above 1 % of the
    computed prompt tokens are listed.

    With --set, tune replays the log twice. The replay with the recorded settings shows the error of the replay; the
    replay with the given settings or build shows the reuse to expect. Without a log, the build's defaults
    replace the recorded settings; memory=swa (or hybrid, recurrent) and window=N then describe the model.
    Logs of vLLM and SGLang need --requests and --tokenizer; --responses or the totals in the log show the reuse.

    Exit status: 0 searched or replayed, also if there is nothing to gain; 2 wrong usage, a setting that the build
    does not know, or an unreadable input; 3 the replay does not reproduce the log, or there is nothing to replay; 130
    interrupted.
    """
    from cachedoctor.doctor.whatif.evidence import Asking
    from cachedoctor.doctor.whatif.simulation import simulate
    from cachedoctor.doctor.whatif.tuning import tune as search
    from cachedoctor.report.forms import whatif_forms

    form = by_name(ctx, format, output, whatif_forms.FORMATS)
    start = started(cmdline)
    start.demand_llama_server()
    asking = Asking(
        paths, bodies.files, bodies.tokenizer, bodies.template, build, start.given, responses=responses or []
    )
    if changes:
        if memory is not None:
            raise typer.BadParameter(
                "--memory limits the search for settings, but --set replays only the given settings"
            )
        _answer(
            asking, output, quiet, lambda found: simulate(found, changes, paths, ran or []),
            partial(whatif_forms.write_simulation, form), judges=False,
        )  # fmt: skip
    else:
        limit_mib = None if memory is None else memory / (1 << 20)
        _answer(
            asking, output, quiet, lambda found: search(found, paths, limit_mib, ran or []),
            partial(whatif_forms.write_tuning, form), judges=True,
        )  # fmt: skip


def _answer(
    asking: Asking,
    output: str | None,
    quiet: bool,
    answer: Callable[[ServerTraffic | BlockEvidence], _Answer],
    write: Callable[[_Answer, IO[bytes], Appearance], None],
    *,
    judges: bool,
) -> None:
    """Read everything, work out the answer and write it; ``judges``: it names the costliest finding.

    Raises:
        CacheDoctorError: something cannot be read, replayed or written.
        typer.Exit: the user interrupted.
    """
    from cachedoctor.doctor.whatif.evidence import gather_any, judge_when_asked, judging

    spare_inputs(output, [*asking.paths, *asking.prompts, *asking.responses, asking.tokenizer, asking.template])
    progress = ReadProgress(asking.paths, quiet)
    try:
        with Interrupts(), Sink(output) as sink:
            with judging() as judge:
                found = gather_any(asking, progress.read, judge if judges else judge_when_asked)
                progress.close()
                answered = answer(found)
            with sink.writing() as out:
                write(answered, out, terminal.look(sink.path is not None))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.close()
