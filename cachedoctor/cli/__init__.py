"""The command line: one file per command. Imports nothing but typer before a command runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from copy import copy
from typing import Annotated

import typer
from typer.exceptions import TyperException

from cachedoctor.cli import (
    analyze,
    compare,
    diff,
    explain,
    exporter,
    fix,
    fleet,
    lint,
    probe,
    proxy,
    redact,
    terminal,
    tune,
    watch,
)
from cachedoctor.cli.arguments import CommandGroup, add_command
from cachedoctor.knowledge.engines import BOTH

app = typer.Typer(
    cls=CommandGroup,
    name="cachedoctor",
    help=f"Why was my prompt recomputed? Reads logs of llama-server, {BOTH} and answers with evidence.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_EXAMPLES = (
    "cachedoctor analyze server.log -o report.html",
    "docker logs llama 2>&1 | cachedoctor analyze --requests bodies.jsonl",
)
"""Rows below the options of ``analyze``, where a terminal shows them."""
_COMMANDS: dict[str, tuple[tuple[Callable[..., None], str, str], ...]] = {
    "Why": (
        (analyze.analyze, "Say why prompts were recomputed, and what fixes it.",
         "--format --output --follow --requests --cmdline --fail-on --verbose"),
        (fix.fix, "Print what to change, in the form of what starts the server.",
         "--launcher --file --service --cmdline"),
        (watch.watch, "Show live what a server does with its cache.",
         "--cmdline --launcher --ignore --kv-events --output"),
        (compare.compare, "Say whether a change helped, with a confidence interval.",
         "--format --output --fail-on --build"),
    ),
    "Requests": (
        (diff.diff, "Say where two prompts diverge, and why.",
         "--tokenizer --template --full --build --format --output"),
        (lint.lint, "Check that requests only extend each other.",
         "--tokenizer --template --server --format --output"),
        (proxy.proxy, "Pass requests to a server, and say what each reused.",
         "--upstream --listen --record --keep-text --fix --dry-run --metrics-listen"),
        (probe.probe, "Ask a running server whether it reuses what it should.",
         "--model --api-key-env --save --against --log --format --output"),
    ),
    "Many servers, other settings": (
        (fleet.fleet, "Sum up many logs, or analyze each into tables and a page.",
         "--output --by --format --jobs"),
        (exporter.exporter, "Serve counters for Prometheus over many live logs.",
         "--follow --listen --state --ignore"),
        (tune.tune, "Rank settings by what they would save, or replay given ones.",
         "--set --memory --requests --tokenizer --cmdline --format --output"),
    ),
    "Share, learn": (
        (redact.redact, "Write a copy of a log that can be shown.", ""),
        (explain.explain, "Explain a rule, a word, a line of a log, the settings.",
         "--line --format"),
    ),
}  # fmt: skip
"""By heading: functions, lines of the list of commands, and options that ``--help`` shows where not all fit."""

for _heading, _commands in _COMMANDS.items():
    for _function, _about, _most in _commands:
        add_command(app, _heading, _function, _about, _most.split(), _EXAMPLES if _function is analyze.analyze else ())


def _version(wanted: bool) -> None:
    if wanted:
        import cachedoctor

        typer.echo(f"cachedoctor {cachedoctor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _with_one(words: list[str]) -> typer.Typer:
    """Give the application with the command that is asked for: typer works out the options of every one that it has."""
    asked = [command for command in app.registered_commands if command.name in words]
    if not asked:
        return app
    alone = copy(app)
    alone.registered_commands = asked
    return alone


def main() -> None:
    """Run the command line; never ends in a traceback unless CACHEDOCTOR_DEBUG is set."""
    if hasattr(signal, "SIGPIPE"):
        # A reader that went away (| head) ends us silently, as it ends every Unix tool.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        status = _with_one(sys.argv[1:2])(standalone_mode=False)
    except TyperException as error:
        raise SystemExit(_refused(error)) from None
    except Exception as error:
        raise SystemExit(terminal.failed(error)) from None
    raise SystemExit(status)


def _refused(error: TyperException) -> int:
    """Say in one line what is wrong with the arguments, and give the exit status."""
    message = error.format_message()
    if "\n" in message:  # the help, because nothing was asked for
        typer.echo(message, err=True)
        return 2
    context = getattr(error, "ctx", None)
    command = "cachedoctor" if context is None else context.command_path
    what = message[:1].lower() + message[1:].rstrip(".").replace("Value error, ", "")
    terminal.complain(what, f"{command} --help says what there is")
    return 2
