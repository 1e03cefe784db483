"""The form of a shell: the user's own command line with other options, or what belongs to it. Also ``docker run``."""

from __future__ import annotations

import re
import shlex

from cachedoctor.launchers.asked_options import Asked, divided
from cachedoctor.launchers.command_words import changed, image_at, words
from cachedoctor.model import FixStep, option_rows

_ROW_ENDS = re.compile(r"(?:(?<![ \t])[ \t]++)?(?:[\^`]\r?\n|(?<!\\)\r?\n)\s*")
"""Ends of rows that no POSIX shell goes on behind: cmd's, PowerShell's, and those of a paste."""


def one_command(line: str) -> str:
    """Write a command line so that a shell takes it as one command."""
    return _ROW_ENDS.sub(" ", line.strip())


def shell(asked: Asked) -> list[FixStep]:
    """Write the command line that is known, or rows of variables and options for the one that is not."""
    if asked.line is not None:
        rows = changed(one_command(asked.line), asked.changes).split("\n")
        return [FixStep("server", f"start {asked.server} with", rows)]
    gone = [change.name for change in asked.changes if change.remove]
    steps = []
    rows = option_rows([change for change in asked.changes if change.variable])
    if rows:
        steps.append(FixStep("server", f"in the shell that starts {asked.server}, before it", rows))
    rows = option_rows([change for change in asked.changes if not change.variable])
    if rows:
        steps.append(FixStep("server", f"add to the command line of {asked.server}, at its end", rows, "options"))
    if gone:
        steps.append(FixStep("server", f"leave out of the command line and environment: {', '.join(gone)}"))
    return steps


def docker(asked: Asked) -> list[FixStep]:
    """Write the ``docker run`` that is known, or variables for in front of the image and options for behind it."""
    if asked.line is not None and image_at(words(asked.line)) is not None:
        return [
            FixStep("server", "start the container with", changed(one_command(asked.line), asked.changes).split("\n"))
        ]
    parts = divided(asked)
    steps = []
    if parts.variables:
        row = " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in parts.variables.items())
        steps.append(FixStep("server", "add to docker run, in front of the image", [row], "options"))
    rows = option_rows(parts.options)
    if rows:
        steps.append(FixStep("server", "add to docker run, behind the image and its arguments", rows, "options"))
    gone = [*parts.left_out, *(change.name for change in parts.options if change.remove)]
    if gone:
        steps.append(FixStep("server", f"leave out of docker run: {', '.join(gone)}"))
    return steps
