"""How much of a text stood in an earlier one, at whatever place. Knows no prompt and no request.

A text is cut where its content says so, not at fixed places, so that the same words make the same pieces wherever they
stand; a piece that an earlier text had is a repeat. Pieces are kept as numbers, never as text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECE = re.compile(rb"(?s)(.{24,}?[\n.;}e7\x81\x8f\x9c\xa5\xb3])|.++")
"""At least 24 bytes up to one that is common in texts, code, numbers and UTF-8: some 35 bytes, which unrelated texts
seldom have in common. What is left without one is taken at once: no piece begins in it."""
_MOST = 1 << 20
"""Pieces that are remembered: some 35 MB of text; what comes later is found in these alone."""


class Repeat(NamedTuple):
    """What a text has in common with earlier ones."""

    length: int
    """Bytes that stood in any of them."""
    owner: int | None
    """Index of the one that has most of it, the latest where several have as much; None where none has any."""


def _cut(text: bytes, start: int = 0) -> list[bytes]:
    return [piece for piece in _PIECE.findall(text, start) if piece]


def pieces(text: bytes) -> dict[int, int]:
    """Cut a text; returns bytes by number of piece."""
    return {hash(piece): len(piece) for piece in _cut(text)}


class Repeats:
    """The texts so far."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        """Of every piece the latest text that had it."""
        self._count = 0

    def of(self, text: bytes, start: int = 0) -> Repeat:
        """Say how much of a text from byte ``start`` on stood in an earlier one."""
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
