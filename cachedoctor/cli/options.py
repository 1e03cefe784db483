"""Options that several commands have. Knows their names and words; knows no command."""

from __future__ import annotations

from typing import Annotated

import typer

from cachedoctor.cli import terminal

MaxUnpacked = Annotated[
    int | None,
    typer.Option(
        parser=terminal.size, metavar="SIZE", help="What a packed log may unpack to, e.g. 200G.  [default: 64G]"
    ),
]

ColorOption = Annotated[
    terminal.Color, typer.Option("--color", help="Colours; auto also heeds NO_COLOR, FORCE_COLOR and TTY_COMPATIBLE.")
]
Width = Annotated[
    int | None, typer.Option("--width", min=20, metavar="N", help="Columns of text.  [default: the terminal's]")
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error; errors stay.")]
