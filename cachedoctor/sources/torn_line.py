"""A line of which one half stands before a cut of the log and the other behind it. Knows no kind of line."""

from __future__ import annotations

import re

_FIRST_WORD = re.compile(rb"[ \t]*\S{1,24}")
_NUMBER = re.compile(rb"\d+")


def begins_a_line(text: bytes, before: bytes) -> bool:
    """Whether ``text`` begins with a word that began a line of ``before``, numbers aside; else it is a line's rest."""
    return _beginning(text) in {_beginning(line) for line in before.split(b"\n")}


def _beginning(line: bytes) -> bytes:
    word = _FIRST_WORD.match(line)
    return _NUMBER.sub(b"0", word[0]) if word else b""
