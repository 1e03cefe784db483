"""Options that several commands have. Knows their names and words; knows no command."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cachedoctor.cli import completion, terminal

MaxUnpacked = Annotated[
    int | None,
    typer.Option(
        parser=terminal.size, metavar="SIZE", help="What a packed log may unpack to, e.g. 200G.  [default: 64G]"
    ),
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
