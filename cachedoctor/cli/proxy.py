"""``cachedoctor proxy``: between clients and a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import AllowHost, allowed_hosts, option
from cachedoctor.cli.ending import INTERRUPTED

if TYPE_CHECKING:
    from cachedoctor.live.proxy.exchange import PassedRequest
    from cachedoctor.live.proxy.serving import Address

_LISTEN = "127.0.0.1:8090"
_SIZE = 1 << 30

_FIXES = (
    "strip-billing-header", "sort-tools", "freeze-clock", "keep-tools", "keep-reasoning", "keep-reminders",
    "pin-mid-system",
)  # fmt: skip


def proxy(
    upstream: Annotated[str, option("--upstream", "Server to forward to, e.g. http://127.0.0.1:8080.", "URL")],
    listen: Annotated[str, option("--listen", "Address for clients to connect to.", "HOST:PORT")] = _LISTEN,
    allow_host: AllowHost = None,
    format: Annotated[Literal["text", "jsonl"], option("--format -f", "Format of the output lines.")] = "text",
    record: Annotated[
        str | None, option("--record", "Append a record of each prompt (hashes and counts) to FILE.", "FILE")
    ] = None,
    keep_text: Annotated[bool, option("--keep-text", "Also record the request bodies.")] = False,
    record_size: Annotated[
        int | None,
        option(
            "--record-size",
            "Size at which FILE is renamed to FILE.1.  [default: 1G]",
            "SIZE",
            parser=terminal.size,
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        option(
            "--fix",
            f"Fix request bodies: {', '.join(_FIXES)}.",
            "NAME",
        ),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Change nothing; report how much the fixes would have saved.")
    ] = False,
    tokenizer: Annotated[str | None, option("--tokenizer", "Tokenizer of the model, as for diff.", "FILE|URL")] = None,
    template: Annotated[str | None, option("--template", "Chat template, as for diff.", "FILE")] = None,
    metrics_listen: Annotated[
        str | None, option("--metrics-listen", "Serve /metrics for Prometheus at this address.", "HOST:PORT")
    ] = None,
) -> None:
    """Forward requests to a server unchanged, and show what each request reused, what changed, and the cost.

    The command needs the pip extra proxy (aiohttp). Clients use http://127.0.0.1:8090 as their server. Ctrl-C lets
    running requests finish; a second Ctrl-C stops these requests.

    Exit status: 0 stopped; 2 wrong usage or unusable address; 130 interrupted again during shutdown.
    """
    _refuse(record, keep_text, fix, dry_run)
    _require_libraries(metrics_listen is not None)
    from cachedoctor.live.proxy.exchange import ProxyOptions
    from cachedoctor.live.proxy.serving import ServingPlan, serve

    path = None if record is None else os.path.abspath(record)
    asked = ProxyOptions(
        path, keep_text, record_size or _SIZE, tuple(dict.fromkeys(fix or [])), dry_run, tokenizer, template
    )
    hosts = allowed_hosts(allow_host)
    where, metrics = _address(listen, "--listen"), None
    if metrics_listen is not None:
        metrics = _address(metrics_listen, "--metrics-listen")
    cut = serve(ServingPlan(upstream, where, metrics, asked, _teller(format), _ready(upstream, where, metrics), hosts))
    if cut:
        raise typer.Exit(INTERRUPTED)


def _refuse(record: str | None, keep_text: bool, fix: list[str] | None, dry_run: bool) -> None:
    if keep_text and record is None:
        raise typer.BadParameter("--keep-text needs --record FILE")
    unknown = next((name for name in fix or [] if name not in _FIXES), None)
    if unknown is not None:
        raise typer.BadParameter(f"--fix {unknown!r}: unknown; choose from {', '.join(_FIXES)}")
    if dry_run and not fix:
        raise typer.BadParameter("--dry-run needs --fix NAME")


def _require_libraries(with_metrics: bool) -> None:
    try:
        import aiohttp  # noqa: F401

        if with_metrics:
            import prometheus_client  # noqa: F401
    except ImportError as error:
        from cachedoctor.knowledge.libraries import install
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError(f"proxy needs {error.name}", install("proxy")) from None


def _address(text: str, option: str) -> Address:
    from cachedoctor.live.proxy.serving import Address

    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise typer.BadParameter(f"{option} {text!r} is not an address; give HOST:PORT, e.g. {_LISTEN}")
    return Address(host, int(port))


def _ready(upstream: str, *asked: Address | None) -> Callable[[Address, Address | None], None]:
    """What says where it listens; ``asked``: the addresses as they were given, a name of which may be several."""
    from cachedoctor.live.named_hosts import is_loopback

    def tell(listening: Address, metrics: Address | None) -> None:
        terminal.complain(f"http://{listening} forwards to {upstream}", "Ctrl-C stops the proxy", "note")
        if metrics is not None:
            terminal.complain(f"counters at http://{metrics}/metrics", kind="note")
        for address in asked:
            if address is not None and not is_loopback(address.host):
                terminal.complain(f"{address.host} is reachable from other machines", kind="warning")

    return tell


def _teller(format: str) -> Callable[[PassedRequest], None]:
    """What writes a line for each request that held a prompt, or that failed."""
    import json

    import msgspec

    from cachedoctor.live.proxy.passed_requests import line

    ascii_only = terminal.look(to_file=False).ascii_only
    on_terminal = sys.stdout is not None and sys.stdout.isatty()

    def tell(seen: PassedRequest) -> None:
        for note in seen.notes:
            terminal.complain(note, kind="warning")
        if not seen.is_prompt and not seen.fault:
            return
        # In plain characters: whatever a client named its tools then reaches any terminal, and harms none.
        width = terminal.look(to_file=False).width if on_terminal else None
        _write(json.dumps(msgspec.to_builtins(seen)) if format == "jsonl" else line(seen, ascii_only, width))

    return tell


def _write(text: str) -> None:
    """Write a line; who reads it may have gone, and requests pass on."""
    if sys.stdout is None:
        return
    try:
        print(text, flush=True)
    except OSError as fault:
        terminal.silence(sys.stdout)
        if not isinstance(fault, BrokenPipeError):
            what = f"the standard output: cannot be written ({fault.strerror}); requests are still forwarded"
            terminal.complain(f"{what}, and no more lines are written", kind="warning")
