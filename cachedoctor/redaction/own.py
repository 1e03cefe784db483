"""What a user wants to be hidden besides secrets: words, and patterns in which nothing can take long.

``#`` is a digit, ``?`` any character, ``*`` the rest of a word. Small and capital letters are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WILD = "#?*"
_PLAIN_LEAST = 3
"""Characters of a pattern that are no wildcards: with fewer it would hide the report."""
_LONGEST, _MOST = 200, 200
_pattern: re.Pattern[str] | None = None


def use(patterns: list[str]) -> None:
    """Hide ``patterns`` from now on, and nothing else of a user's own.

    Raises:
        ValueError: one of them says too little, or too much; the text says what is wrong.
    """
    global _pattern  # noqa: PLW0603  # a setting of the process, as its colours are
    if len(patterns) > _MOST:
        raise ValueError(f"more than {_MOST} patterns")
    _pattern = re.compile("(?<!<)(?:" + "|".join(map(_translated, patterns)) + ")", re.I) if patterns else None


def found(text: str) -> Iterable[tuple[int, int]]:
    """Give where ``text`` holds one of them."""
    return () if _pattern is None else (match.span() for match in _pattern.finditer(text))


def _translated(pattern: str) -> str:
    """Return a regular expression in which a star ends before the character behind it: it never has to go back."""
    if sum(char not in _WILD and not char.isspace() for char in pattern) < _PLAIN_LEAST:
        raise ValueError(f"{pattern!r} has fewer than {_PLAIN_LEAST} characters besides wildcards")
    if len(pattern) > _LONGEST:
        raise ValueError(f"a pattern has more than {_LONGEST} characters")
    out = []
    for at, char in enumerate(pattern):
        if char == "#":
            out.append("[0-9]")
        elif char == "?":
            out.append(".")
        elif char == "*":
            out.append(_star(pattern[at + 1 :].lstrip("*?")))
        else:
            out.append(re.escape(char))
    return "".join(out)


def _star(rest: str) -> str:
    end = "0-9" if rest.startswith("#") else re.escape(rest[:1])
    return rf"[^\s\"'<>{end}]{{0,{_LONGEST}}}+"
