"""What two texts have in common, and texts that UTF-8 cannot hold. Pure functions; knows no server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

_Text = TypeVar("_Text", str, bytes)

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPE = (
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair is a character
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_ESCAPES_OF_TEXT, _ESCAPES_OF_BYTES = re.compile(_ESCAPE, re.DOTALL), re.compile(_ESCAPE.encode(), re.DOTALL)


def sound(text: str) -> str:
    """Replace lone surrogates, which JSON and Python can write and UTF-8 cannot; offsets stay."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def sound_json(text: _Text) -> _Text:
    """Replace escapes of lone surrogates in JSON, so that all its strings are sound: ``\\ud83d`` by ``\\ufffd``.

    To be called before JSON of others is decoded. Offsets stay.
    """
    if isinstance(text, bytes):
        if b"\\ud" not in text and b"\\uD" not in text:
            return text
        return _ESCAPES_OF_BYTES.sub(lambda found: b"\\ufffd" if found["lone"] else found[0], text)
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPES_OF_TEXT.sub(lambda found: "\\ufffd" if found["lone"] else found[0], text)


def longest_prefix(text: _Text, others: Iterable[_Text]) -> int | None:
    """Return how many characters, or bytes, ``text`` begins with like the one of ``others`` that is most like it.

    None without another. One that is not longer like it than the best so far is passed over at a glance.
    """
    best: int | None = None
    longer = text[:0]
    for other in others:
        if best is None or (best < len(text) and other.startswith(longer)):
            best = common_prefix(text, other)
            longer = text[: best + 1]
    return best


def common_prefix(a: _Text, b: _Text) -> int:
    """Return how many characters, or bytes, both begin with.

    Found by halving: comparing slices is fast, one character after the other is not.
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
