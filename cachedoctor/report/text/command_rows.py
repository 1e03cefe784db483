r"""Commands in rows that fit the page and can still be copied: a long one goes on behind a backslash.

``llama-server -m model.gguf \`` and ``    -np 4 --cache-ram 8192`` below it. Knows characters; knows no report.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")
"""A word of a shell, with what is quoted in it."""
_INDENT = "    "


def rows(command: str, room: int) -> list[str]:
    """Break ``command`` where a shell puts it together again; a word that is longer than ``room`` cells stays whole."""
    if "\n" in command:  # a file, or a part of one
        return command.split("\n")
    words = _WORD.findall(command)
    if cell_len(command) <= room or " ".join(words) != command or any(word.startswith("#") for word in words):
        return [command]
    lines: list[str] = []
    row = ""
    for unit in _units(words, room - len(_INDENT) - 2):
        indent = _INDENT if lines else ""
        if row and cell_len(f"{row} {unit}") > room - 2:
            lines.append(f"{row} \\")
            row = _INDENT + unit
        else:
            row = f"{row} {unit}" if row else indent + unit
    return [*lines, row]


def _units(words: list[str], room: int) -> list[str]:
    """An option and its value stand in one row, where it has room for both."""
    units: list[str] = []
    for word in words:
        both = f"{units[-1]} {word}" if units else word
        takes_value = units and units[-1].startswith("-") and not {" ", "="} & set(units[-1])
        if takes_value and not word.startswith("-") and cell_len(both) <= room:
            units[-1] = both
        else:
            units.append(word)
    return units
