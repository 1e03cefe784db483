"""Decodes escaped text (JSON, percent, HTML entities), and judges whether characters look random."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from cachedoctor.knowledge.late_patterns import late

_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
_WRITTEN = late(
    r"\\{1,8}(?:u(?P<u>[0-9A-Fa-f]{4})|x(?P<x>[0-9A-Fa-f]{2})|(?P<c>[nrtbfv0\"'/`]))"
    r"|%(?:25){0,4}(?P<p>[0-9A-Fa-f]{2})"
    r"|&(?:\#(?P<d>\d{1,5})|\#[xX](?P<h>[0-9A-Fa-f]{1,4})|(?P<e>quot|apos|amp|lt|gt|nbsp));"
    rf"|(?P<z>[{_UNSEEN}\U000e0000-\U000e007f]+)"
    r"|(?P<w>[\uff01-\uff5e])"
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_ENTITIES = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">", "nbsp": " "}
_WIDE = 0xFEE0
"""From a full-width form to the character of ASCII."""
_OTHER = "\ufffd"
"""Replacement for a byte that is part of a character: not a letter of a key."""


class DecodedText:
    """A text as it is meant."""

    def __init__(self, text: str, at: list[int], original: list[int]) -> None:
        self.text = text
        self._at, self._original = at, original

    def place(self, at: int) -> int:
        """Return the place in the text as it is written of the character ``at``."""
        piece = bisect_right(self._at, at) - 1
        return self._original[piece] + at - self._at[piece]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the characters from ``start`` up to ``end`` (not empty) are written."""
        last = bisect_right(self._at, end - 1) - 1
        after = self._at[last + 1] if last + 1 < len(self._at) else None
        return self.place(start), self._original[last + 1] if after == end else self.place(end)


def decoded(text: str) -> DecodedText | None:
    """Return the decoded text if it differs from ``text``, else None.

    Takes time linear in its length.
    """
    if text.isascii() and not ("\\" in text or "%" in text or "&" in text):
        return None
    parts: list[str] = []
    at, original, size, done = [0], [0], 0, 0
    for found in _WRITTEN.finditer(text):
        for part, start in ((text[done : found.start()], done), (_meant(found), found.start())):
            if part:
                if at[-1] == size:
                    at.pop()
                    original.pop()
                at.append(size)
                original.append(start)
                parts.append(part)
                size += len(part)
        done = found.end()
        at.append(size)
        original.append(done)
    if not done:
        return None
    parts.append(text[done:])
    return DecodedText("".join(parts), at, original)


def _meant(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[found.lastgroup or 0]
    if kind == "z":
        return ""
    if kind == "c":
        return _CONTROLS.get(text, text)
    if kind == "e":
        return _ENTITIES[text]
    if kind == "w":
        return chr(ord(text) - _WIDE)
    number = int(text, 10 if kind == "d" else 16)
    if kind == "p" and number > 0x7F:
        return _OTHER
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else _OTHER


_CLASS = {**dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"), **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A")}
_CLASS |= dict.fromkeys("0123456789", "0")
_HEX = late(r"(?:[0-9a-f]+|[0-9A-F]+)\Z")
_WORD = late(r"[A-Z]?[a-z]+\d{0,4}\Z|[A-Z]+\d{0,4}\Z|\d*\Z")
_OF_THREE = 20, 0.4
"""Length from which mixed-case letters with digits count as random, and the minimum share of characters whose class
differs from the previous one: 0.62 if each is drawn from 62, about 0.3 in names with inner capitals."""
_OF_TWO = 26, 0.28
"""The same for letters of one case with digits: 0.40 if each is drawn from 36."""
_OF_LETTERS = 30, 0.42
"""The same for letters of both cases: 0.50 if each is drawn from 52."""
_DIGITS = "0123456789"
_HEX_LEAST = 32
_EDGE = 8


def is_word(text: str) -> bool:
    """Whether ``text`` is a word, maybe with a number after it, or nothing but digits."""
    return _WORD.match(text) is not None


def is_random(text: str) -> bool:
    """Whether a long text of letters and digits, in base64 also of ``+`` and ``/``, looks random."""
    kinds = {_CLASS.get(char, "") for char in text} - {""}
    if "0" in kinds and _HEX.match(text):
        return len(kinds) > 1 and len(text) >= _HEX_LEAST
    if len(kinds) == 3:
        least, share = _OF_THREE
        least += 6 * (sum(char in _DIGITS for char in text) < 2)  # a name with a number in it has one digit
    elif "0" in kinds and len(kinds) == 2:
        least, share = _OF_TWO
    elif len(kinds) == 2:
        least, share = _OF_LETTERS
    else:
        return False
    return len(text) >= least and changes(text) >= share * (len(text) - 1)


def is_random_short(text: str, least: int = _EDGE) -> bool:
    """Whether a truncated text, or one that its context calls a secret, looks random: not a word and not a number."""
    if len(text) < least or is_word(text):
        return False
    kinds = {_CLASS.get(char, "") for char in text} - {""}
    if "0" in kinds:
        return changes(text) >= max(3, 0.25 * len(text))
    return len(kinds) > 1 and changes(text) >= max(4, 0.4 * len(text))


def changes(text: str) -> int:
    """Count the characters that are of another class (lower, upper, digit, other) than the one before."""
    classes = [_CLASS.get(char, "") for char in text]
    return sum(a != b for a, b in pairwise(classes))
