"""What the shell offers for a word that is being typed. Knows names of rules; imports nothing heavy."""

from __future__ import annotations


def rule(incomplete: str) -> list[tuple[str, str]]:
    """Codes and names that begin so, each with the other as its explanation; names only for an empty word."""
    from cachedoctor.rules.names import names

    pairs = [(name, code) for code, name in names()]
    if incomplete:
        pairs = [*names(), *pairs]
    # As they are spelt so far: what begins otherwise, be it a capital, is not offered.
    size, begun = len(incomplete), incomplete.lower()
    found: dict[str, str] = {}  # engines have causes of the same name
    for word, other in pairs:
        if word.lower().startswith(begun):
            found[word] = f"{found[word]}, {other}" if word in found else other
    return [(incomplete + word[size:], other) for word, other in found.items()]


def explained(incomplete: str) -> list[tuple[str, str]]:
    """The same, and words of the reports where something was typed that begins one."""
    from cachedoctor.knowledge import glossary

    begun = incomplete.lower()
    words = {term.name: "word" for term in glossary.terms() if begun and term.name.lower().startswith(begun)}
    blind = {"blind": "rules that could not be evaluated"} if begun and "blind".startswith(begun) else {}
    return [*rule(incomplete), *((incomplete + word[len(begun) :], about) for word, about in (words | blind).items())]


def rules(incomplete: str) -> list[tuple[str, str]]:
    """The same for the last word of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + word, explanation) for word, explanation in rule(last)]
