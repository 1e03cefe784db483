"""What simulate and tune share: what they read, and how the answer is written. Knows options; knows no replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.ending import INTERRUPTED
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.read_progress import Progress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.cli.started import started

if TYPE_CHECKING:
    from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
    from cachedoctor.doctor.whatif.block_trace import BlockTraffic
    from cachedoctor.doctor.whatif.evidence import Asking, Evidence
    from cachedoctor.report.base import Look

_Answer = TypeVar("_Answer")

Inputs = Annotated[
    list[str],
    typer.Argument(metavar="LOG|BODIES", help="Logs of one server, or JSONL of request bodies; - is a log."),
]
Responses = Annotated[
    list[str] | None,
    typer.Option("--responses", metavar="FILE", help="vLLM, SGLang: what the server answered, with usage; repeatable."),
]


class Beside(NamedTuple):
    """What was given beside the inputs."""

    prompts: list[str] | None
    requests: list[str] | None
    tokenizer: str | None
    template: str | None
    build: int | None
    cmdline: str | None
    max_unpacked: int | None
    responses: list[str] | None = None


class Output(NamedTuple):
    """Where the answer goes, and how it looks."""

    path: str | None
    quiet: bool
    color: terminal.Color
    width: int | None


def run(
    paths: list[str],
    beside: Beside,
    output: Output,
    answer: Callable[[Evidence | BlockEvidence], _Answer],
    write: Callable[[_Answer, IO[bytes], Look], None],
) -> None:
    """Read everything, ask for the answer and write it.

    Raises:
        CacheDoctorError: something cannot be read, replayed or written.
        typer.Exit: the user interrupted.
    """
    more = [*_bodies(beside), *(beside.responses or []), beside.tokenizer, beside.template]
    spare_inputs(output.path, [*paths, *more])
    progress = Progress(paths, output.quiet)
    try:
        with Interrupts(), Sink(output.path) as sink:
            found = evidence(paths, progress, beside)
            progress.close()
            said = answer(found)
            with sink.writing() as out:
                write(said, out, terminal.look(sink.path is not None, output.color, output.width))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.close()


def evidence(paths: list[str], progress: Progress, beside: Beside) -> Evidence | BlockEvidence:
    """Read everything.

    Raises:
        CacheDoctorError: it cannot be read, or cannot be replayed.
    """
    from cachedoctor.doctor.whatif.evidence import gather_any

    return gather_any(_asking(paths, beside), progress.read)


def traffic(paths: list[str], progress: Progress, beside: Beside) -> Evidence | BlockTraffic:
    """Read everything for a trace.

    Raises:
        CacheDoctorError: it cannot be read, or cannot be replayed.
    """
    from cachedoctor.doctor.whatif.evidence import gather_trace

    return gather_trace(_asking(paths, beside), progress.read)


def _bodies(beside: Beside) -> list[str]:
    return [*(beside.prompts or []), *(beside.requests or [])]


def _asking(paths: list[str], beside: Beside) -> Asking:
    from cachedoctor.doctor.whatif.evidence import Asking
    from cachedoctor.inputs.sources.unpack import MAX_BYTES

    start, limit = started(beside.cmdline), beside.max_unpacked or MAX_BYTES
    start.demand_llama_server()
    said = beside.responses or []
    return Asking(paths, _bodies(beside), beside.tokenizer, beside.template, beside.build, start.given, limit, said)
