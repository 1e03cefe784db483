"""Fields of a line of an excerpt, of which some may be missing: ``n_past = 30118, ...``."""

from __future__ import annotations


class Partly(dict[str, object]):
    """Fields of a line of which some are missing."""

    def __missing__(self, name: str) -> object:
        raise LacksFieldError(name)


class LacksFieldError(Exception):
    """A field that is needed was left out."""
