"""Turns literal texts into patterns: blanks match any run of blanks, many literals share one trie.

Knows regular expressions. Knows no message.
"""

from __future__ import annotations

import re

_BLANK = b"[ \t]++"
"""Possessive: with several blank runs in a row, a line of blanks would cost the cube of its length."""


def literal_pattern(text: str) -> bytes:
    """Pattern of a literal; each run of blanks in it matches one or more blanks or tabs."""
    return _BLANK.join(re.escape(part).encode() for part in re.split(r"[ \t]+", text))


def trie_pattern(texts: list[str]) -> bytes:
    """One pattern for all ``texts``, longest first, without trying them one after the other."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]  # a trie is recursive
    for text in texts:
        node = root
        for char in " ".join(text.split()):
            node = node.setdefault(char, {})
        node[""] = {}
    return _render(root)


def _render(node: dict[str, dict]) -> bytes:  # type: ignore[type-arg]
    ends = "" in node
    branches = []
    for char, child in node.items():
        if char:
            branches.append((_BLANK if char == " " else re.escape(char).encode()) + _render(child))
    if not branches:
        return b""
    if len(branches) == 1 and not ends:
        return branches[0]
    return b"(?:" + b"|".join(branches) + (b"|" if ends else b"") + b")"
