"""What becomes of a value, and of what stands before a message, in lines of the small programs around llama.cpp.

Knows which named values come from a closed vocabulary, and clocks and levels. Must not know rows or lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cachedoctor.redact.holes import address
from cachedoctor.redact.tokens import Tokens

_KEPT = {
    "version": re.compile(rb"v?\d{1,5}(?:\.\d{1,6}){1,3}"),
    "tid": re.compile(rb"\"\d{1,20}\""),
    "truncated": re.compile(rb"true|false"),
    "type": re.compile(rb"exact|partial|prefix|full"),
    "reason": re.compile(rb"non_trimmable_divergence"),
    "rates": re.compile(
        rb"\d{1,9}(?:\.\d{1,6})? T/s(?:, Generate: \d{1,9}(?:\.\d{1,6})? T/s(?:, Context: \d{1,9} tokens\))?)?,?"
        rb"(?: ?Generate:)?"
    ),
}
_CLOCK = rb"\d{1,4}(?:[-:.,/T]\d{1,6}){1,8}(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = rb"(?:DEBUG|INFO|WARNING|WARN|ERROR|ERR|CRITICAL|VERB|TRACE)"
_HARMLESS = re.compile(
    rb"\[?" + _CLOCK + rb"\]?|time=" + _CLOCK + rb"|level=" + _LEVEL + rb"|" + _LEVEL + rb":?|\[" + _LEVEL + rb"\]:?|\["
)
WORD = re.compile(rb"\s+|\[[^\]\s]*\]:?|\S+")
"""A part of what stands before a message."""
_CACHED = re.compile(rb"(?:\A| )\d{1,15} \Z")
"""How many tokens of a broken line of TabbyAPI were reused; the line goes on with ``cached tokens``."""


def replaced(name: str, kind: str, raw: bytes, tokens: Tokens) -> bytes:
    """Return what stands in the place of ``raw``, the value ``name`` of a message; numbers are not asked for."""
    known = _KEPT.get(name)
    if known is not None and known.fullmatch(raw.strip()):
        return raw
    if kind == "host":
        return address(raw, tokens)
    return tokens.give("request" if name in ("id", "tid") else "text", raw)


def prefix(raw: bytes, known: frozenset[bytes], tokens: Tokens) -> bytes:
    """Write what stands before a message anew: clocks, levels and the ``known`` words of the program stay."""
    count = _CACHED.search(raw)
    if count is not None:
        return tokens.give("text", raw[: count.start()]) + raw[count.start() :]
    return b"".join(_words(raw, known, tokens))


def _words(raw: bytes, known: frozenset[bytes], tokens: Tokens) -> Iterator[bytes]:
    for found in WORD.finditer(raw):
        word = found[0]
        if not word.strip() or word in known or _HARMLESS.fullmatch(word):
            yield word if word.strip() else word.replace(b"\r", b"")
        elif word.startswith(b"source="):
            yield b"source=x.go:1"
        elif word.startswith(b"time="):
            yield b"time=-"
        elif word.startswith(b"level="):
            yield b"level=INFO"
        elif word.startswith(b"["):
            yield b"[x]:"[: 4 if word.endswith(b":") else 3] if b"]" in word else b"["
        elif word.endswith(b"]"):
            yield b"function]"
        else:
            yield tokens.give("text", word)
