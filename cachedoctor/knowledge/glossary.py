"""The words of the reports in a sentence or two each: the table ``glossary.toml``, typed, and how to look one up."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One word, ``slot``."""

    name: str
    meaning: str
    also: list[str] = []
    """Other spellings by which it can be asked for."""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    term: list[Term]


@cache
def terms() -> list[Term]:
    """Return all words in the order of the alphabet."""
    raw = Path(__file__).with_name("glossary.toml").read_bytes()
    return sorted(msgspec.toml.decode(raw, type=_Table).term, key=lambda term: term.name.lower())


def find(word: str) -> Term | None:
    """Return the word that is spelt so, in any case, with hyphens or blanks; None for an unknown one."""
    wanted = _plain(word)
    return next((term for term in terms() if wanted in map(_plain, (term.name, *term.also))), None)


def spellings() -> list[str]:
    """Return every way in which a word can be asked for."""
    return [spelling for term in terms() for spelling in (term.name, *term.also)]


def _plain(word: str) -> str:
    return " ".join(word.lower().replace("-", " ").replace("_", " ").split())
