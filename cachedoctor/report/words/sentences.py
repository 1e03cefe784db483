"""Sentences: the first one, and as many as have room. ``Update llama.cpp: b9538 restores it. It costs nothing.``"""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\.\.\.) +(?=[A-Z\"'(]|llama-server\b)")


def sentences(text: str) -> list[str]:
    """Split at ends of sentences; a version or a file name has none inside."""
    return _END.split(text)


def first_sentence(text: str) -> str:
    """Return the first sentence."""
    return sentences(text)[0]


def leading(text: str, most: int) -> str:
    """Return the sentences that ``most`` characters have room for, at least the first one."""
    found = sentences(text)
    taken = found[0]
    for sentence in found[1:]:
        if len(taken) + 1 + len(sentence) > most:
            break
        taken += f" {sentence}"
    return taken


def capital(text: str) -> str:
    """Begin with a capital, but for an option, and for a name that is written small."""
    word = text.split(" ", 1)[0]
    plain = (word.isalpha() and word.islower()) or word == "a"
    return text[:1].upper() + text[1:] if plain else text
