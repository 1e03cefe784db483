"""The words of the reports in a sentence or two each: the table ``glossary.toml``, typed, and how to look one up."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Term(NamedTuple):
    """One word, ``slot``. No struct of msgspec: a shell that completes a word imports nothing heavy."""

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    """Other spellings by which it can be asked for."""


@cache
def terms() -> list[Term]:
    """Return all words in the order of the alphabet."""
    table = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))
    return sorted((Term(**row) for row in table["term"]), key=lambda term: term.name.lower())


def find(word: str) -> Term | None:
    """Return the word that is spelt so, in any case, with hyphens or blanks; None for an unknown one."""
    wanted = _plain(word)
    return next((term for term in terms() if wanted in map(_plain, (term.name, *term.also))), None)


def spellings() -> list[str]:
    """Return every way in which a word can be asked for."""
    return [spelling for term in terms() for spelling in (term.name, *term.also)]


def _plain(word: str) -> str:
    return " ".join(word.lower().replace("-", " ").replace("_", " ").split())
