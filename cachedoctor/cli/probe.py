"""``cachedoctor probe``: ask a running server whether it reuses what it should."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Output, Quiet, by_name, option
from cachedoctor.cli.ending import FOUND, INTERRUPTED, NOTHING, Interrupts
from cachedoctor.cli.sink import Sink, spare_inputs

if TYPE_CHECKING:
    from cachedoctor.model.probed import Probe, ProbedServer

_LEAST, _MOST = 200, 100_000
"""Tokens of a prompt."""


def probe(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="Address of the server, e.g. http://127.0.0.1:8080.  [default: try the usual ports on this machine]",
        ),
    ] = None,
    model: Annotated[str | None, option("--model", "Model name, if the server has several.", "NAME")] = None,
    key: Annotated[
        str | None, option("--api-key-env", "Name of the environment variable that holds the server's API key.", "NAME")
    ] = None,
    prompt_tokens: Annotated[
        int,
        option(
            "--prompt-tokens",
            "Approximate prompt length in tokens; sliding windows need a longer prompt.",
            "N",
            min=_LEAST,
            max=_MOST,
        ),
    ] = 700,
    budget: Annotated[
        int, option("--budget", "Limit on the prompt tokens of all requests together.", "TOKENS", min=1)
    ] = 20_000,
    timeout: Annotated[
        float, option("--timeout", "Time limit for the whole probe in seconds.", "SECONDS", min=1, max=86_400)
    ] = 120,
    force: Annotated[bool, option("--force", "Also probe a busy server.")] = False,
    save: Annotated[str | None, option("--save", "Save the responses for --against.", "FILE")] = None,
    against: Annotated[str | None, option("--against", "Compare with responses saved before a fix.", "FILE")] = None,
    log: Annotated[str | None, option("--log", "Server log to compare the responses with.", "LOG")] = None,
    fail_on: Annotated[
        Literal["never", "deviation"], option("--fail-on", "Exit with 1 if something is not as expected.")
    ] = "never",
    format: Annotated[Literal["text", "json"], option("--format -f", "Format of the result.")] = "text",
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Send a running server a few small requests, and show whether it reuses its cache as it should.

    The probe sends up to 12 requests with new prompts and one-token replies: a repeat, one more turn, an edited end, an
    edited start (nothing may be reused), another conversation in between, tools, two requests at once, and an image
    if the server supports images. The probe announces each request, uses one slot, and stops if the server is busy.

    Exit status: 0 probed; 1 with --fail-on, something is not as expected; 2 wrong usage, or the server does not
    respond; 3 the responses show nothing about the cache; 130 interrupted.
    """
    from cachedoctor.live.probe import probing
    from cachedoctor.report.forms import probe_forms

    secret = _key(key)
    spare_inputs(output, [against, log])
    spare_inputs(save, [against, log, output])
    before = probing.stored(against) if against is not None else None
    if log is not None:
        probing.check_log(log)
    form = by_name(ctx, format, output, probe_forms.FORMATS)
    try:
        with Interrupts(), Sink(output) as sink, Sink(save) if save is not None else nullcontext() as kept:
            shown = _asked(url, secret, (model, prompt_tokens, budget, force), timeout, quiet)
            if before is not None:
                probing.join_before(shown, before)
            if log is not None:
                probing.join_log(shown, log)
            if kept is not None:
                with kept.writing() as out:
                    out.write(probe_forms.encoded(shown))
            with sink.writing() as out:
                probe_forms.write_probe(form, shown, out, terminal.look(sink.path is not None))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if shown.measure == "none" and not shown.causes:
        raise typer.Exit(NOTHING)
    if fail_on == "deviation" and (shown.causes or any(q.state in ("less", "more") for q in shown.questions)):
        raise typer.Exit(FOUND)


@pipes_may_break()  # here, because two requests at once are sent by threads
def _asked(
    url: str | None, key: str | None, wanted: tuple[str | None, int, int, bool], timeout: float, quiet: bool
) -> Probe:
    import cachedoctor
    from cachedoctor.live.probe import questioning
    from cachedoctor.live.probe.connection import ProbeConnection
    from cachedoctor.live.probe.plan import MOST_REQUESTS
    from cachedoctor.report.forms import probe_forms
    from cachedoctor.report.text.text_safe import visible

    at = ProbeConnection(url, key, timeout) if url is not None else questioning.find(key, timeout)
    asks = questioning.ProbeLimits(*wanted)

    def announce(server: ProbedServer) -> None:
        if not quiet:
            said = probe_forms.announced(server, MOST_REQUESTS, asks.prompt_tokens, asks.budget, timeout)
            terminal.tell(f"cachedoctor: {visible(said)}")

    return questioning.probe(at, asks, announce, cachedoctor.__version__)


def _key(name: str | None) -> str | None:
    from cachedoctor.model import CacheDoctorError

    if name is None:
        return None
    value = os.environ.get(name, "").strip()
    if not value:
        raise CacheDoctorError(
            "--api-key-env: the environment variable is not set", "give the name of a variable, never the key itself"
        )
    if not value.isascii() or not value.isprintable():
        raise CacheDoctorError(
            "--api-key-env: the key has characters that are not valid in a header",
            "set the variable again, to a valid key",
        )
    return value
