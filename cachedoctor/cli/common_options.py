"""Options that several commands have. Knows their names and words; knows no command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import completion, terminal

if TYPE_CHECKING:
    from cachedoctor.model import Given

MaxUnpacked = Annotated[
    int | None,
    typer.Option(
        parser=terminal.size, metavar="SIZE", help="What a packed log may unpack to, e.g. 200G.  [default: 64G]"
    ),
]
Build = Annotated[
    int | None,
    typer.Option(parser=terminal.build_number, metavar="N", help="Build of llama.cpp, when the log does not say it."),
]
Cmdline = Annotated[
    str | None,
    typer.Option("--cmdline", metavar="'llama-server ...'", help="What started the server; its options are checked."),
]


_OTHERS = re.compile(r"(?:^|[\s/])(?:vllm\s+serve|vllm\.entrypoints|sglang(?:\.launch_server|\s+serve))\b")
"""What starts a server whose options nobody reads here."""


def given_or_piped(ctx: typer.Context, path: str | None) -> str:
    """Return the input: the one that was named, else what is piped in; where there is neither, print the help."""
    if path is not None:
        return path
    if terminal.piped():
        return "-"
    typer.echo(ctx.get_help(), err=True)
    raise typer.Exit(2)


def starts_another(line: str) -> bool:
    """Whether a command line starts vLLM or SGLang."""
    return _OTHERS.search(line) is not None


def given_options(line: str | None) -> list[Given]:
    """Read the command line of a server, where one was given."""
    if line is None:
        return []
    if starts_another(line):
        from cachedoctor.model import CacheDoctorError

        what = "--cmdline is about llama-server: options of vLLM and SGLang are not checked"
        raise CacheDoctorError(what, "their logs say at the start how they were resolved")
    from cachedoctor.knowledge.cmdline import parse

    return parse(line)


ColorOption = Annotated[
    terminal.Color, typer.Option("--color", help="Colours; auto also heeds NO_COLOR, FORCE_COLOR and TTY_COMPATIBLE.")
]
Width = Annotated[
    int | None, typer.Option("--width", min=20, metavar="N", help="Columns of text.  [default: the terminal's]")
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error; errors stay.")]

LauncherName = Literal["shell", "docker", "compose", "systemd", "kubernetes", "llama-swap", "ollama", "lm-studio"]
Launcher = Annotated[
    LauncherName | None,
    typer.Option("--launcher", help="What starts the server, for fixes in its form.  [default: as the log tells]"),
]

Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="RULE,...",
        autocompletion=completion.rules,
        help="Report these rules only: codes, beginnings of codes (CD1) or names; repeatable.",
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="RULE,...", autocompletion=completion.rules, help="Do not report these rules; repeatable."
    ),
]
FailOn = Annotated[
    Literal["never", "note", "warning", "error"], typer.Option(help="Exit with 1 when a finding is that severe.")
]
Config = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Settings, instead of the nearest cachedoctor.toml or pyproject.toml with [tool.cachedoctor].",
    ),
]
NoConfig = Annotated[bool, typer.Option("--no-config", "--isolated", help="Read no file of settings.")]
Prompts = Annotated[
    str | None, typer.Option("--prompts", metavar="DIR", help="Directory that --log-prompts-dir wrote.")
]
Requests = Annotated[
    str | None, typer.Option("--requests", metavar="FILE", help="JSONL of the client's request bodies, in order.")
]
ModelTokenizer = Annotated[
    str | None, typer.Option("--tokenizer", metavar="FILE|URL", help="Makes the match of prompts exact; see diff.")
]
Template = Annotated[
    str | None, typer.Option("--template", metavar="FILE", help="Chat template for request bodies; see diff.")
]
