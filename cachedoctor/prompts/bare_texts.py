"""Prompts that are one text without turns, as stories and code are: which continues which, and which fills a gap."""

from __future__ import annotations

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import pieces
from cachedoctor.prompts.prompt import Prompt

END = 64
"""Characters at the end of a text by which it is found in another one."""
_OPENING = 64
"""Characters at the end of a prompt that may be the opening of the reply."""
_KEPT = 0.75
"""Share of a text that the continuing text must contain, at any position."""
_LEAST = 200
"""Characters after a dropped part that must match; sentences that many prompts share are shorter."""
_TRIES = 8
"""Places of a repeated beginning that are tried."""
_SUFFIX = late(r"<\|(?:fim_|code_)?suffix\|>|<fim[-_]suffix>|<｜fim▁hole｜>|<SUF>|\[SUFFIX\]|<\|fim_hole\|>")
_PREFIX = late(r"<\|(?:fim_|code_)?prefix\|>|<fim[-_]prefix>|<｜fim▁begin｜>|<PRE>|\[PREFIX\]|<\|fim_begin\|>")
"""What models for code call the texts before and after the cursor."""


def fills_in(prompt: Prompt) -> bool:
    """Whether a prompt asks for the text at an editor's cursor, between two others; it continues no conversation."""
    if prompt.kind == "llama-infill":
        return True
    is_text = prompt.kind == "openai-completion"
    return is_text and _SUFFIX.search(prompt.text) is not None and _PREFIX.search(prompt.text) is not None


def takes_up(text: str, before: str) -> bool:
    """Whether a text continues after the end of an earlier text and contains most of it; earlier parts may differ.

    Separate prompts after one instruction do not contain each other's end, or all of them end with the same text.
    """
    end = before[-END:].strip()
    at = text.rfind(end)
    if len(end) < END // 2 or at < 0 or not text[at + len(end) :].strip():
        return False
    known, sent = (pieces(one.encode("utf-8", "surrogatepass")) for one in (before, text))
    return sum(known[piece] for piece in known.keys() & sent.keys()) >= _KEPT * sum(known.values())


def dropped(before: str, text: str, offset: int) -> int | None:
    """Characters of a text that another one leaves out from ``offset`` on, where both first differ.

    The other one has all the rest, and goes on after it. None where it is changed in another way, or the part moved.
    """
    probe = text[offset : offset + _LEAST]
    if len(probe) < _LEAST:
        return None
    kept = len(before) - min(_OPENING, len(before) // 8)
    at = before.find(probe, offset + 1)
    for _ in range(_TRIES):
        if at < 0:
            return None
        rest = before[at:kept]
        if text.startswith(rest, offset) and len(text) > offset + len(rest) + _OPENING:
            gone = before[offset : (offset + at + 1) // 2]  # its half: the texts may agree by chance a little further
            return None if text.find(gone, offset) >= 0 else at - offset
        at = before.find(probe, at + 1)
    return None
