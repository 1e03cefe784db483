"""The command line: one file per command. A command is imported when it is run."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Annotated, Protocol, runtime_checkable

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.arguments import CommandGroup, add_command
from cachedoctor.knowledge.engines import BOTH

_EXAMPLES = (
    "cachedoctor analyze server.log -o report.html",
    "docker logs llama 2>&1 | cachedoctor analyze --requests bodies.jsonl",
)
"""Rows below the options of ``analyze``, where a terminal shows them."""
COMMANDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "The log doctor": (
        ("analyze", "Show why prompts were recomputed, and how to fix it.",
         "--format --output --follow --requests --cmdline --fail-on --verbose"),
        ("fix", "Print the fix for your launcher (shell, compose, systemd ...).",
         "--launcher --file --service --cmdline"),
        ("watch", "Show live how a server uses its cache.",
         "--cmdline --launcher --ignore --kv-events --output"),
        ("compare", "Show whether a change helped, with a confidence interval.",
         "--format --output --fail-on --build"),
        ("diff", "Show where two prompts diverge, and why.",
         "--tokenizer --template --full --build --format --output"),
        ("lint", "Check that each request extends the previous one.",
         "--tokenizer --template --server --format --output"),
        ("redact", "Write a copy of a log that is safe to publish.", ""),
        ("explain", "Explain a rule, a word, a log line or the settings.",
         "--line --format"),
    ),
    "For running servers and many logs (* needs a pip extra)": (
        ("probe", "Test whether a running server reuses its cache.",
         "--model --api-key-env --save --against --log --format --output"),
        ("proxy", "Forward requests to a server, and show their reuse. *",
         "--upstream --listen --record --keep-text --fix --dry-run --metrics-listen"),
        ("tune", "Rank settings by their savings, or replay settings you choose.",
         "--set --memory --requests --tokenizer --cmdline --format --output"),
        ("fleet", "Analyze many logs: print totals, or write tables and HTML. *",
         "--output --by --format --jobs"),
        ("exporter", "Serve Prometheus counters for many live logs. *",
         "--follow --listen --state --ignore"),
    ),
}  # fmt: skip
"""By heading: command names, their lines in the command list, and the options that ``--help`` shows if not all fit."""


def _version(wanted: bool) -> None:
    if wanted:
        import cachedoctor

        typer.echo(f"cachedoctor {cachedoctor.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


def make_app(imported: Collection[str] | None = None) -> typer.Typer:
    """Return the application; commands not among ``imported`` (None: all are) have a name and a line of help only."""
    app = typer.Typer(
        cls=CommandGroup,
        name="cachedoctor",
        help=f"Why was my prompt recomputed? Reads logs of llama-server, {BOTH} and shows cause, proof and fix.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for heading, commands in COMMANDS.items():
        for name, about, most in commands:
            function = _import_command(name) if imported is None or name in imported else _listed_only(name)
            add_command(app, heading, function, about, most.split(), _EXAMPLES if name == "analyze" else ())
    return app


def _import_command(name: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(importlib.import_module(f"cachedoctor.cli.{name}"), name)
    return function


def _listed_only(name: str) -> Callable[..., None]:
    def command() -> None:
        raise AssertionError(f"{name} is run, but only listed")

    command.__name__ = name
    return command


def _needed(words: list[str]) -> Collection[str] | None:
    """Commands that a command line may run; None for all, as where a shell completes a word."""
    first = words[0] if words else ""
    if "_CACHEDOCTOR_COMPLETE" in os.environ:
        return None
    if first in ("", "-h", "--help"):
        return ()
    if any(first == name for commands in COMMANDS.values() for name, _, _ in commands):
        return (first,)
    return ("analyze",) if first == "-" or os.path.exists(first) else None


def main() -> None:
    """Run the command line; never ends in a traceback unless CACHEDOCTOR_DEBUG is set."""
    if hasattr(signal, "SIGPIPE"):
        # A reader that went away (| head) ends us silently, as it ends every Unix tool.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        status = make_app(_needed(sys.argv[1:]))(standalone_mode=False)
    except Exception as error:
        failed = _refused(error) if isinstance(error, _Refusal) else terminal.failed(error)
        raise SystemExit(failed) from None
    raise SystemExit(status)


@runtime_checkable
class _Refusal(Protocol):
    """What typer raises where arguments are wrong: a class of its own from 0.27 on, one of click before."""

    def format_message(self) -> str: ...


def _refused(error: _Refusal) -> int:
    """Say in one line what is wrong with the arguments, and give the exit status."""
    message = error.format_message()
    if "\n" in message:  # the help, because nothing was asked for
        typer.echo(message, err=True)
        return 2
    context = getattr(error, "ctx", None)
    command = "cachedoctor" if context is None else context.command_path
    what = message[:1].lower() + message[1:].rstrip(".").replace("Value error, ", "")
    terminal.complain(what, f"{command} --help lists the options")
    return 2
