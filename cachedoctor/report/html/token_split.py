"""What became of the prompt tokens of a request: reused, recomputed, new. Knows RequestRow; knows no drawing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cachedoctor.model import RequestRow, counted


class Tokens(NamedTuple):
    """The prompt tokens of one request or of several."""

    reused: int
    """Taken from the cache."""
    recomputed: int
    """Of the computed tokens those that were computed before and not used."""
    new: int
    """Computed for the first time."""
    unsure: int
    """Computed; the log does not say whether they were new."""

    @property
    def prompt(self) -> int:
        """All of them."""
        return sum(self)


NONE = Tokens(0, 0, 0, 0)

KINDS: dict[str, str] = {
    "reused": "reused from the cache",
    "recomputed": "computed again",
    "new": "new: computed for the first time",
    "unsure": "not reused, and the log does not say whether it was new",
}
"""Words for a legend."""


def added(several: Iterable[Tokens]) -> Tokens:
    """Add kind by kind."""
    return Tokens(*(sum(kind) for kind in zip(NONE, *several, strict=True)))


def tokens(row: RequestRow) -> Tokens | None:
    """Split the prompt of a request; None where the log does not say how much was reused."""
    found = counted(row, children=True)
    if found is None:
        return None
    processed = found.processed if found.processed is not None else found.prompt - found.cached
    if row.lost_tokens is not None:
        lost = min(row.lost_tokens, processed)
        return Tokens(found.cached, lost, processed - lost, 0)
    if row.outcome == "cold":
        return Tokens(found.cached, 0, processed, 0)
    return Tokens(found.cached, 0, 0, processed)
