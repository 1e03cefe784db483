"""What the shell offers for a word that is being typed. Knows names of rules; imports nothing heavy."""

from __future__ import annotations

from cachedoctor.rules import names


def rule(incomplete: str) -> list[tuple[str, str]]:
    """Codes and names that begin so, each with the other as its explanation; names only for an empty word."""
    word = incomplete.upper()
    by_name = [(name, code) for code, name in names.names() if name.upper().startswith(word)]
    return by_name if not word else [(c, n) for c, n in names.names() if c.startswith(word)] + by_name


def rules(incomplete: str) -> list[tuple[str, str]]:
    """The same for the last word of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + word, explanation) for word, explanation in rule(last)]
