"""The command line: one file per command. Imports nothing but typer before a command runs.

Knows commands, exit statuses and the words of errors. Knows no log.
"""

from __future__ import annotations

import signal
import sys
from copy import copy
from typing import Annotated

import typer
from typer.exceptions import TyperException

from cachedoctor.cli import (
    analyze,
    compare,
    config,
    diff,
    explain,
    export,
    exporter,
    fix,
    fleet,
    lint,
    probe,
    proxy,
    record_kv,
    redact,
    report,
    rules,
    simulate,
    stats,
    terminal,
    tune,
    watch,
)
from cachedoctor.cli.arguments import Command, Group
from cachedoctor.knowledge.engines import EITHER

_EXAMPLES = """\b
Examples:
  cachedoctor analyze server.log -o report.html
  docker logs llama 2>&1 | cachedoctor analyze --requests bodies.jsonl
"""
"""Two rows below the options of analyze, where a terminal shows them."""

app = typer.Typer(
    cls=Group,
    name="cachedoctor",
    help="Why was my prompt recomputed? Reads llama-server logs and answers with evidence.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("analyze", cls=Command, epilog=_EXAMPLES)(analyze.analyze)
app.command("watch", cls=Command, short_help="Show live what a server does with its cache.")(watch.watch)
app.command("report", cls=Command)(report.report)
app.command("fix", cls=Command, short_help="Print what to change, in the form of what starts the server.")(fix.fix)
app.command("diff", cls=Command, short_help="Say where two prompts diverge, and why.")(diff.diff)
app.command("lint", cls=Command, short_help="Check that requests only extend each other.")(lint.lint)
app.command("proxy", cls=Command, short_help="Pass requests to a server, and say what each reused.")(proxy.proxy)
app.command("redact", cls=Command, short_help="Write a copy of a log that can be shown.")(redact.redact)
app.command("explain", cls=Command, short_help="Explain a rule, or a line of a log.")(explain.explain)
app.command("rules", cls=Command)(rules.rules)
app.command("export", cls=Command, short_help="Write requests, or lines, as a table.")(export.export)
app.command("stats", cls=Command, short_help="Sum up requests over many logs and servers.")(stats.stats)
app.command("compare", cls=Command, short_help="Say whether a change helped, with a confidence interval.")(
    compare.compare
)
app.command("exporter", cls=Command, short_help="Serve counters for Prometheus over many live logs.")(exporter.exporter)
app.command("fleet", cls=Command, short_help="Analyze many logs side by side, into tables and a page.")(fleet.fleet)
app.command("simulate", cls=Command, short_help="Say what other settings would have reused.")(simulate.simulate)
app.command("tune", cls=Command, short_help="Rank settings by what they would have saved.")(tune.tune)
app.command("probe", cls=Command, short_help="Ask a running server whether it reuses what it should.")(probe.probe)
app.command("record-kv", cls=Command, short_help=f"Record KV events of {EITHER}.")(record_kv.record_kv)
app.command("config", cls=Command)(config.config)


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
