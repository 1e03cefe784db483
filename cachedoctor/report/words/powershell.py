"""Commands that set the environment, as PowerShell takes them: it knows neither ``export`` nor ``unset``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def in_powershell(commands: Sequence[str], room: int | None = None) -> list[str]:
    """Return ``commands`` for PowerShell, ``$env:X = '0'``; nothing if they are the same there, or no shell's.

    A command of several statements is one row, or where that is longer than ``room`` a row for each. ``setx X 0``
    keeps a variable for later shells.
    """
    found = [_statements(command) for command in commands]
    if found == [[command] for command in commands]:
        return []
    rows = []
    for statements in found:
        row = "; ".join(statements)
        rows += [row] if room is None or len(row) <= room else statements
    return rows


def _statements(command: str) -> list[str]:
    head, _, rest = command.partition(" ")
    if head not in ("export", "unset") or "\n" in rest:
        return [command]
    try:
        words = shlex.split(rest)
    except ValueError:  # a quote that is left open: from a report that somebody wrote
        return [command]
    if not all((name := word.partition("=")[0]).isidentifier() and name.isascii() for word in words):
        return [command]  # no name of a variable, which would not be quoted there
    if head == "unset":
        return [f"Remove-Item {', '.join(f'Env:{word}' for word in words)}"]
    pairs = [word.partition("=") for word in words]
    return [f"$env:{name} = {_quoted(value)}" for name, _, value in pairs]


def _quoted(value: str) -> str:
    """Write a text in which PowerShell replaces nothing; of its typographic quotes each ends a text as well."""
    return "'" + "".join(2 * c if c in "'‘’‚‛" else c for c in value) + "'"
