"""Cheap looks at a block of lines: nearly every block of nearly every log is looked at, and has nothing."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol


class Found(Protocol):
    """Where a look found something."""

    def start(self) -> int:
        """Offset in the block."""


class Look(Protocol):
    """A cheap look at a block."""

    def search(self, data: bytes, /) -> Found | None:
        """The first line of the engine; what is found stands within it."""


class _Place(NamedTuple):
    offset: int

    def start(self) -> int:
        return self.offset


class Literals:
    """Finds any of a few literals. One by one, as ``re`` tries alternatives at every byte: ten times the cost."""

    def __init__(self, *literals: bytes, sure: re.Pattern[bytes] | None = None) -> None:
        """``sure``: where a literal stands, this is looked for instead."""
        self._literals = literals
        self._sure = sure

    def search(self, data: bytes, /) -> Found | None:
        """The first of them."""
        places = [place for literal in self._literals if (place := data.find(literal)) >= 0]
        if not places:
            return None
        return _Place(min(places)) if self._sure is None else self._sure.search(data)


class Either:
    """Finds what any of a few looks finds."""

    def __init__(self, *looks: Look) -> None:
        self._looks = looks

    def search(self, data: bytes, /) -> Found | None:
        """The first of them in the block."""
        return min(filter(None, (look.search(data) for look in self._looks)), key=lambda at: at.start(), default=None)
