"""Colours of the terminal's formats: each can be read on black and on white, with a contrast of at least 4.5.

Numbers are those of the 256 colours that every terminal draws alike; the first 16 are not, as each theme has its own.
"""

from __future__ import annotations

from functools import lru_cache

ERROR, WARNING, NOTE = "bold color(163)", "bold color(131)", "bold color(63)"
COMMAND, OLD, NEW = "color(29)", "bold color(131)", "bold color(29)"
GUTTER, BARS = "color(243)", "color(63)"
KEY = "bold"
SEVERITY = {"error": ERROR, "warning": WARNING, "note": NOTE}
"""Style of the word by severity."""
ALL = (ERROR, WARNING, NOTE, COMMAND, OLD, NEW, GUTTER, BARS)
"""Every style with a colour."""
_NAMED = {
    "red": "color(131)",
    "green": "color(29)",
    "yellow": "color(131)",
    "blue": "color(63)",
    "cyan": "color(63)",
    "magenta": "color(163)",
    "dim": "color(243)",
}
"""What stands for the colours of which every theme has its own."""


@lru_cache(maxsize=64)
def readable(style: str) -> str:
    """Return the style with colours of the palette in the place of those that a theme decides: ``bold green``."""
    return " ".join(_NAMED.get(word, word) for word in style.split())
