"""Whether letters and digits look as if they were drawn, and not written. Knows counts of characters, no secret."""

from __future__ import annotations

import re
from itertools import pairwise

_CLASS = {**dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"), **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A")}
_CLASS |= dict.fromkeys("0123456789", "0")
_HEX = re.compile(r"(?:[0-9a-f]+|[0-9A-F]+)\Z")
_WORD = re.compile(r"[A-Z]?[a-z]+\d{0,4}\Z|[A-Z]+\d{0,4}\Z|\d*\Z")
_OF_THREE = 20, 0.4
"""Characters from which on letters of both cases with digits are random, and the least share of them that is of
another class than the one before: 0.62 where each is drawn from 62, about 0.3 in names with capitals inside."""
_OF_TWO = 26, 0.28
"""The same of letters of one case with digits: 0.40 where each is drawn from 36."""
_OF_LETTERS = 30, 0.42
"""The same of letters of both cases: 0.50 where each is drawn from 52."""
_DIGITS = "0123456789"
_HEX_LEAST = 32
_EDGE = 8


def is_word(text: str) -> bool:
    """Whether ``text`` is a word, maybe with a number behind it, or nothing but digits."""
    return _WORD.match(text) is not None


def is_random(text: str) -> bool:
    """Whether a long text of letters and digits, in base64 also of ``+`` and ``/``, looks drawn."""
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
    """Whether a text that something else calls a secret, or that is cut, looks drawn: no word and no number."""
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
