"""Options that several commands have, and the groups in which commands take them."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer

from cachedoctor.cli import arguments, terminal
from cachedoctor.report.base import format_of

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.filtering import RequestFilter

INPUT, EVIDENCE, OUTPUT = "Input", "Other evidence", "Output"
GATE, TERMINAL, SETTINGS = "Rules and gate", "Terminal", "Settings"
"""Groups of options in a help."""


def option(names: str, about: str, metavar: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """Return an option of typer, e.g. ``option("--output -o", "Write to FILE.", "FILE")``."""
    return typer.Option(*names.split(), help=about, metavar=metavar, rich_help_panel=panel, **more)


_Form = TypeVar("_Form", bound=str)

Output = Annotated[str | None, option("--output -o", "Write to FILE instead of standard output.", "FILE")]
MaxUnpacked = Annotated[
    int | None,
    option(
        "--max-unpacked",
        "Size limit for a decompressed log, e.g. 200G.  [default: 64G]",
        "SIZE",
        INPUT,
        parser=terminal.size,
    ),
]
Build = Annotated[
    int | None,
    option("--build", "llama.cpp build, if the log does not show it.", "N", INPUT, parser=terminal.build_number),
]
Cmdline = Annotated[
    str | None,
    option(
        "--cmdline",
        "Server command 'llama-server ...', or a file with it (compose.yaml, unit, script).",
        "LINE|FILE",
        EVIDENCE,
    ),
]
AllowHost = Annotated[
    list[str] | None,
    option(
        "--allow-host",
        "Also accept requests with this name in the Host header; by default, only localhost and IP addresses. "
        "Repeatable.",
        "NAME",
    ),
]


def allowed_hosts(names: list[str] | None) -> tuple[str, ...]:
    """Return what was given to --allow-host."""
    from cachedoctor.live.named_hosts import host_names

    try:
        return host_names(names or ())
    except ValueError as fault:
        raise typer.BadParameter(f"--allow-host {str(fault)!r} is not a host name; remove port and path") from None


def given_or_piped(ctx: typer.Context, path: str | None) -> str:
    """Return the input: the one that was named, else what is piped in; where there is neither, print the help."""
    if path is not None:
        return path
    if terminal.piped():
        return "-"
    typer.echo(ctx.get_help(), err=True)
    raise typer.Exit(2)


def refuse_alone(tokenizer: str | None, template: str | None) -> None:
    """Raise ``CacheDoctorError`` for a tokenizer or a template without the prompts that they are for."""
    if tokenizer is not None or template is not None:
        from cachedoctor.model import CacheDoctorError

        name = "--tokenizer" if tokenizer is not None else "--template"
        hint = "give prompts with --requests FILE, --prompts DIR or --slots FILE"
        raise CacheDoctorError(f"{name} works only with prompts", hint)


def refuse_page(format: str, output: str | None) -> None:
    """Raise ``CacheDoctorError`` where a page or a binary file would be poured over a terminal."""
    pages = {"html": ("a page for a browser", "report.html"), "parquet": ("a binary file", "requests.parquet")}
    if format in pages and output is None and sys.stdout is not None and sys.stdout.isatty():
        from cachedoctor.model import CacheDoctorError

        what, name = pages[format]
        raise CacheDoctorError(f"--format {format}: is {what}, which a terminal cannot show", f"add -o {name}")


def by_name(ctx: typer.Context, format: _Form, output: str | None, known: tuple[_Form, ...]) -> _Form:
    """Return the format that was asked for, else the one of the ``known`` that the name of the output ends in."""
    source = ctx.get_parameter_source("format")
    if source is not None and source.name == "COMMANDLINE":
        return format
    found = format_of(output, known)
    return next((form for form in known if form == found), format)


ColorOption = Annotated[
    terminal.Color,
    option("--color", "Use colours; auto also respects NO_COLOR, FORCE_COLOR and TTY_COMPATIBLE.", None, TERMINAL),
]
Width = Annotated[
    int | None, option("--width", "Width of text in columns.  [default: the terminal's]", "N", TERMINAL, min=20)
]

Verbose = Annotated[bool, option("--verbose -v", "Show all proof, fixes, servers and unchecked rules.", None, TERMINAL)]
Unknown = Annotated[bool, option("--unknown", "List the unrecognised lines, grouped by pattern.", None, OUTPUT)]
Quiet = Annotated[
    bool, option("--quiet -q", "Print only errors on standard error, no progress and no notes.", None, TERMINAL)
]

LauncherName = Literal[
    "shell", "docker", "compose", "systemd", "kubernetes", "llama-swap", "ollama", "lm-studio", "jan"
]
Launcher = Annotated[
    LauncherName | None,
    option(
        "--launcher",
        "Program that starts the server: shell, docker, compose, systemd, kubernetes, llama-swap, ollama, "
        "lm-studio or jan.  [default: from the log]",
        "NAME",
        OUTPUT,
    ),
]

Select = Annotated[
    list[str] | None,
    option(
        "--select",
        "Report only these rules: codes, code prefixes (CD1) or names; repeatable.",
        "RULE,...",
        GATE,
        autocompletion=arguments.rules,
    ),
]
Ignore = Annotated[
    list[str] | None,
    option("--ignore", "Do not report these rules; repeatable.", "RULE,...", GATE, autocompletion=arguments.rules),
]
FailOn = Annotated[
    Literal["never", "note", "warning", "error"],
    option(
        "--fail-on",
        "Lowest severity for exit 1: note, warning, error.",
        "LEVEL",
        GATE,
        show_default=False,
    ),
]
Tasks = Annotated[
    list[int] | None, option("--task", "Show only the request with this task number; repeatable.", "N", OUTPUT, min=0)
]
Slots = Annotated[
    list[int] | None, option("--slot", "Show only requests on this slot; repeatable.", "N", OUTPUT, min=0)
]
Since = Annotated[
    str | None,
    option(
        "--since",
        "Show only requests that started at this time or later: 2026-05-01T10:00, 10:00, or +90s after the "
        "server start.",
        "TIME",
        OUTPUT,
    ),
]
Until = Annotated[
    str | None, option("--until", "Show only requests that started at this time or earlier.", "TIME", OUTPUT)
]


class RequestSelection(NamedTuple):
    """Which requests of a log are shown."""

    task: Tasks = None
    slot: Slots = None
    since: Since = None
    until: Until = None

    def wanted(self, format: str) -> RequestFilter | None:
        """Return which requests are to be shown, None for all.

        Raises:
            CacheDoctorError: it is not a time, or the format tells everything as it happens.
        """
        if not self.task and not self.slot and self.since is None and self.until is None:
            return None
        from cachedoctor.doctor.analysis.filtering import RequestFilter
        from cachedoctor.model import CacheDoctorError

        if format == "jsonl":
            hint = "use --format json, or jq 'select(.type == \"request\" and .task == 41)'"
            raise CacheDoctorError("--format jsonl: prints events as they happen and cannot be filtered", hint)
        wanted = RequestFilter(tuple(self.task or ()), tuple(self.slot or ()), self.since, self.until)
        wanted.check()
        return wanted


Config = Annotated[
    str | None,
    option(
        "--config",
        "Settings file to use instead of the nearest cachedoctor.toml or pyproject.toml with [tool.cachedoctor].",
        "FILE",
        SETTINGS,
    ),
]
NoConfig = Annotated[bool, option("--no-config --isolated", "Do not read a settings file.", None, SETTINGS)]
Prompts = Annotated[
    list[str] | None, option("--prompts", "Directory written by --log-prompts-dir; repeatable.", "DIR", EVIDENCE)
]
Requests = Annotated[
    list[str] | None,
    option("--requests", "Request bodies in order, or a proxy record; repeatable.", "FILE", EVIDENCE),
]
HashClients = Annotated[
    bool, option("--hash-clients", "Replace session and user names in request bodies with hashes.", None, EVIDENCE)
]
ModelTokenizer = Annotated[
    str | None, option("--tokenizer", "Tokenizer for exact matching of prompts; see diff.", "FILE|URL", EVIDENCE)
]
Template = Annotated[str | None, option("--template", "Chat template for request bodies; see diff.", "FILE", EVIDENCE)]


class ServerInfo(NamedTuple):
    """What is known of the server that wrote a log."""

    build: Build = None
    cmdline: Cmdline = None
    launcher: Launcher = None


class Gate(NamedTuple):
    """Which rules are reported, and the file that may say so."""

    select: Select = None
    ignore: Ignore = None
    config: Config = None
    no_config: NoConfig = False


class Bodies(NamedTuple):
    """Prompts beside a log, and what makes tokens of them."""

    prompts: Prompts = None
    requests: Requests = None
    tokenizer: ModelTokenizer = None
    template: Template = None

    @property
    def files(self) -> list[str]:
        """Files and directories with prompts."""
        return [*(self.prompts or []), *(self.requests or [])]


def refuse_others(ctx: typer.Context, allowed: Collection[str], what: str) -> None:
    """Raise ``CacheDoctorError`` for the first option on the command line that is not ``allowed`` with ``what``."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if param.name not in allowed and source is not None and source.name == "COMMANDLINE":
            from cachedoctor.model import CacheDoctorError

            name = max(param.opts, key=len)
            raise CacheDoctorError(f"{name}: cannot be combined with {what}", f"remove {name}")
