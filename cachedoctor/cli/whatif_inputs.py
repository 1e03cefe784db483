"""What simulate and tune read: logs, or request bodies, with what lies beside them. Knows options; knows no replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cachedoctor.cli.common_options import given_options

if TYPE_CHECKING:
    from cachedoctor.cli.read_progress import Progress
    from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
    from cachedoctor.doctor.whatif.evidence import Asking, Evidence

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

    prompts: str | None
    requests: str | None
    tokenizer: str | None
    template: str | None
    build: int | None
    cmdline: str | None
    max_unpacked: int | None
    responses: list[str] | None = None


def evidence(paths: list[str], progress: Progress, beside: Beside) -> Evidence | BlockEvidence:
    """Read everything.

    Raises:
        CacheDoctorError: it cannot be read, or cannot be replayed.
    """
    from cachedoctor.doctor.whatif.evidence import gather_any

    return gather_any(_asking(paths, beside), progress.read)


def traffic(paths: list[str], progress: Progress, beside: Beside) -> Evidence:
    """Read everything of a llama-server.

    Raises:
        CacheDoctorError: it cannot be read, or cannot be replayed.
    """
    from cachedoctor.doctor.whatif.evidence import gather

    return gather(_asking(paths, beside), progress.read)


def _asking(paths: list[str], beside: Beside) -> Asking:
    from cachedoctor.doctor.whatif.evidence import Asking
    from cachedoctor.sources.unpack import MAX_BYTES

    bodies = [path for path in (beside.prompts, beside.requests) if path is not None]
    given, limit = given_options(beside.cmdline), beside.max_unpacked or MAX_BYTES
    said = beside.responses or []
    return Asking(paths, bodies, beside.tokenizer, beside.template, beside.build, given, limit, said)
