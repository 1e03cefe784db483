"""Pure functions over texts: common beginnings, repeats, invalid UTF-8, names of rotations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from cachedoctor.knowledge.late_patterns import late

_Text = TypeVar("_Text", str, bytes)
_STRETCH = 1 << 16
"""Characters, or bytes, of two texts that are compared at once."""

_LONE = late("[\ud800-\udfff]")
_ESCAPE = (
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair is a character
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_ESCAPES_OF_TEXT, _ESCAPES_OF_BYTES = late(_ESCAPE, re.DOTALL), late(_ESCAPE.encode(), re.DOTALL)


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
    """Return the length in characters, or bytes, of the longest common prefix of ``text`` with one of ``others``.

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
    """Return the length of the common prefix in characters, or bytes.

    Found by halving a stretch: comparing slices is fast, one character after the other is not, and texts that differ
    at their beginning are not copied to their end.
    """
    start, limit = 0, min(len(a), len(b))
    while start < limit and a[start : start + _STRETCH] == b[start : start + _STRETCH]:
        start += _STRETCH
    low, high = min(start, limit), min(start + _STRETCH, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_PIECE = late(rb"(?s)(.{24,}?[\n.;}e7\x81\x8f\x9c\xa5\xb3])|.++")
"""A piece is at least 24 bytes and ends at a byte common in texts, code, numbers and UTF-8: about 35 bytes, which
unrelated texts seldom share. Remaining text without such a byte is skipped at once: no piece begins in it."""
_MOST = 1 << 20
"""Pieces that are remembered: about 35 MB of text; later text is compared with these only."""


class Repeat(msgspec.Struct, frozen=True):
    """What a text has in common with earlier ones."""

    length: int
    """Bytes that occur in any of them."""
    owner: int | None
    """Index of the text that contains most of it, the latest one on a tie; None if no text contains any."""


def _cut(text: bytes, start: int = 0) -> list[bytes]:
    return [piece for piece in _PIECE.findall(text, start) if piece]


def pieces(text: bytes) -> dict[int, int]:
    """Cut a text; returns bytes by number of piece."""
    return {hash(piece): len(piece) for piece in _cut(text)}


class Repeats:
    """The texts so far, by their pieces."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        """For every piece the latest text that contained it."""
        self._count = 0

    def of(self, text: bytes, start: int = 0) -> Repeat:
        """Say how much of a text from byte ``start`` on was in an earlier one."""
        found, by_owner = 0, dict[int, int]()
        for piece in _cut(text, start):
            owner = self._owners.get(hash(piece))
            if owner is not None:
                found += len(piece)
                by_owner[owner] = by_owner.get(owner, 0) + len(piece)
        best = max(by_owner, key=lambda index: (by_owner[index], index), default=None)
        return Repeat(found, best)

    def add(self, text: bytes) -> None:
        """Remember a text; the first one has index 0."""
        for piece in _cut(text):
            if len(self._owners) >= _MOST:
                break
            self._owners[hash(piece)] = self._count
        self._count += 1


_ROTATED = late(r"(?:[.-]\d[\dT_:-]*)?(?:\.(?:gz|xz|bz2|zst))?$")


def base_name(path: str) -> str:
    """Return the name of the log of which ``path`` is a rotation: ``server.log`` for ``server.log.2.gz``."""
    return _ROTATED.sub("", path)
