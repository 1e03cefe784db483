"""Texts that a program can print, as its binary or its source holds them.

``"clearing prompt with %zu tokens\\n"`` becomes ``clearing prompt with ◊ tokens``: a value is one sign, of any kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

HOLE = "\u25ca"
"""Stands for a value."""
_PRINTF = re.compile(r"%(?:%|[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGaAcspn])")
STRAY = rf"[^\s{HOLE}]{{0,32}}?"
"""What may stand before a text in a binary: a text, or numbers, that no zero byte ends."""
_PREFIX = re.compile(rf"{STRAY}(slot|srv|que|res|cmn|spec) +{HOLE}: *(?:id +{HOLE} +\| +task +{HOLE} +\| ?)?")
"""What llama-server's log macros put before a message: component, function, slot and task."""


class Text(NamedTuple):
    """One line that a program can print."""

    component: str
    """Of llama-server's macros: slot, srv ...; empty where nothing says it."""
    text: str
    """Without blanks at its ends; what is written with several blanks keeps them."""
    logged: bool
    """Whether it is surely a log message; in a binary any text may be one."""
    level: str
    """Letter of its level, as rows have it; empty where it is not known."""
    where: str
    """File and line; empty in a binary."""


def filled(text: str) -> str:
    """Put the sign of a value for every conversion of printf; ``%%`` is a per cent sign."""
    return _PRINTF.sub(lambda found: "%" if found[0] == "%%" else HOLE, text)


def lines(text: str, *, logged: bool, level: str = "", where: str = "") -> Iterator[Text]:
    """Give the lines of a text with its values filled; what macros put before it is taken off."""
    for line in text.split("\n"):
        component = ""
        if prefix := _PREFIX.match(line):
            component, line = prefix[1], line[prefix.end() :]
            logged = True
        if re.search(r"[A-Za-z]{2}", line):
            yield Text(component, line.strip(), logged, level, where)
