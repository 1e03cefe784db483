"""``cachedoctor record-kv``: KV events into a file. Knows arguments, the file and exit statuses; knows no event."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Annotated

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Quiet
from cachedoctor.cli.ending import NOTHING
from cachedoctor.cli.keys import Interrupts

if TYPE_CHECKING:
    from cachedoctor.live.kv_recorder import KvRecorder

_CONFIG = """--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}'"""


def record_kv(
    endpoints: Annotated[
        list[str], typer.Argument(metavar="ENDPOINT", help="Where the server publishes, one for each rank.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is standard output.")],
    replay: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="Ask there for what was missed (replay_endpoint); one for each."),
    ] = None,
    bind: Annotated[
        bool, typer.Option("--bind", help="Wait for a server that connects: its endpoint holds no *.")
    ] = False,
    length: Annotated[
        float | None,
        typer.Option("--for", parser=terminal.seconds, metavar="TIME", help="End after 30s, 5m ...; else by Ctrl-C."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Record the KV events of vLLM or SGLang, for analyze --kv-events: what was pushed out, and what changed.

    Hashes only: neither tokens nor text are written. Needs pyzmq: pip install 'cachedoctor[kv]'. The server publishes
    with --kv-events-config. Exit status: 0 recorded; 2 wrong usage, or an endpoint with something else; 3 nothing came.
    """
    from cachedoctor.inputs.sources.kv_subscription import KvSubscription
    from cachedoctor.live.kv_recorder import KvRecorder
    from cachedoctor.model import CacheDoctorError

    if replay and len(replay) != len(endpoints):
        raise CacheDoctorError("--replay: give one for each ENDPOINT, in the same order", "or none")
    tell: Callable[[str, str], None] = (lambda message, hint: None) if quiet else _note
    subscription = KvSubscription(endpoints, bind, replay or ())
    with Interrupts() as interrupts, subscription, _written(output) as out:
        recorder = KvRecorder(endpoints, out, tell)
        with interrupts.deferred() as asked:
            end = None if length is None else time.monotonic() + length
            try:
                recorder.run(subscription, lambda: asked() or (end is not None and time.monotonic() >= end))
            finally:
                recorder.close()
    raise typer.Exit(_told(recorder, output, quiet))


def _note(message: str, hint: str) -> None:
    terminal.complain(message, hint, "note")


@contextlib.contextmanager
def _written(path: str) -> Iterator[IO[bytes]]:
    """A file that is there from its first line on: a recording that is cut off is one, too."""
    from cachedoctor.model import CacheDoctorError

    if path == "-":
        yield sys.stdout.buffer
        return
    try:
        with open(path, "xb") as file:
            yield file
    except FileExistsError:
        raise CacheDoctorError(f"{path}: is there already", "give a new file with -o") from None
    except OSError as fault:
        raise CacheDoctorError(f"{path}: cannot be written ({fault.strerror})", "give another file with -o") from None


def _told(recorder: KvRecorder, output: str, quiet: bool) -> int:
    """Say how much was recorded, and give the exit status."""
    if not recorder.messages:
        terminal.complain("no KV event came", f"vllm serve MODEL {_CONFIG}")
        return NOTHING
    if not quiet:
        missing = f"; {recorder.missing:,} did not come" if recorder.missing else ""
        _note(
            f"{recorder.messages:,} messages recorded{missing}", f"cachedoctor analyze server.log --kv-events {output}"
        )
    return 0
