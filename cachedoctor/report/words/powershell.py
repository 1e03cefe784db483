"""Commands that set the environment, as PowerShell takes them: it knows neither ``export`` nor ``unset``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def in_powershell(commands: Sequence[str]) -> list[str]:
    """Return ``commands`` for PowerShell, ``$env:X = '0'``; nothing where they are the same there, or no shell's.

    ``setx X 0`` keeps a variable for later shells.
    """
    rows = [_row(command) for command in commands]
    return [] if rows == list(commands) else rows


def _row(command: str) -> str:
    head, _, rest = command.partition(" ")
    if head not in ("export", "unset") or "\n" in rest:
        return command
    try:
        words = shlex.split(rest)
    except ValueError:  # a quote that is left open: from a report that somebody wrote
        return command
    if not all((name := word.partition("=")[0]).isidentifier() and name.isascii() for word in words):
        return command  # no name of a variable, which would not be quoted there
    if head == "unset":
        return f"Remove-Item {', '.join(f'Env:{word}' for word in words)}"
    pairs = [word.partition("=") for word in words]
    return "; ".join(f"$env:{name} = {_quoted(value)}" for name, _, value in pairs)


def _quoted(value: str) -> str:
    """Write a text in which PowerShell replaces nothing; of its typographic quotes each ends a text as well."""
    return "'" + "".join(2 * c if c in "'‘’‚‛" else c for c in value) + "'"
