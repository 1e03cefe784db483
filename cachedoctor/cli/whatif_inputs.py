"""What simulate and tune read: logs, or request bodies, with what lies beside them. Knows options; knows no replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cachedoctor.cli.common_options import given_options

if TYPE_CHECKING:
    from cachedoctor.cli.read_progress import Progress
    from cachedoctor.doctor.whatif.evidence import Evidence

Inputs = Annotated[
    list[str],
    typer.Argument(metavar="LOG|BODIES", help="Logs of one llama-server, or JSONL of request bodies; - is a log."),
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


def evidence(paths: list[str], progress: Progress, beside: Beside) -> Evidence:
    """Read everything.

    Raises:
        CacheDoctorError: it cannot be read, or cannot be replayed.
    """
    from cachedoctor.doctor.whatif.evidence import Asking, gather
    from cachedoctor.sources.unpack import MAX_BYTES

    bodies = [path for path in (beside.prompts, beside.requests) if path is not None]
    given = given_options(beside.cmdline)
    limit = beside.max_unpacked or MAX_BYTES
    asking = Asking(paths, bodies, beside.tokenizer, beside.template, beside.build, given, limit)
    return gather(asking, progress.read)
