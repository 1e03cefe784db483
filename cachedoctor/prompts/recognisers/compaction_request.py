"""The request for a summary of a conversation, with another head than the conversation has. Knows turns and tools."""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.prompts.recognisers.base import Difference, Recognition, snippet
from cachedoctor.prompts.recognisers.edited_messages import Histories, of_bodies, of_texts
from cachedoctor.prompts.recognisers.turns import Turn, head

_ASKS = re.compile(r"\bsummar(?:y|ies|i[sz]e|i[sz]ing|i[sz]ation)\b|\bcompact(?:ion|ing)?\b|\bhandoff\b", re.I)
_OF = re.compile(r"\b(?:conversations?|sessions?|transcript|chat|history|messages|task)\b", re.I)
_SMALL = re.compile(r"\btitles?\b|\btopics?\b|\btags\b|\b\d+[ -](?:words?|characters?)\b", re.I)
"""A title is a summary as well, but of a request of its own, which compacts nothing."""
_LOOK = 600
"""Code points at the beginning of a message in which it says what it asks for."""
_LONG = 24
"""Code points from which a message is unlikely to be in two conversations by chance."""


def compaction_request(d: Difference) -> Recognition | None:
    """The second prompt asks for a summary of the first one's conversation, with another system prompt or tools."""
    h = of_bodies(d) or of_texts(d)
    if h is None or not h.a or not h.b:
        return None
    other = _other_head(d, h)
    if other is None or not _asks(h.b) or _asks(h.a) or not _holds(h.a, h.b, d.b.text):
        return None
    a, b = snippet(d)
    text = f"the request for a summary of the conversation has {other}"
    return Recognition("compaction-request", a, b, text, "system" if "system" in other else "tools")


def _other_head(d: Difference, h: Histories) -> str | None:
    """What the head of the second prompt has not in common with that of the first, in words."""
    found = []
    if [turn.key for turn in h.a[: h.heads]] != [turn.key for turn in h.b[: head(h.b)]]:
        found.append("another system prompt" if head(h.b) else "no system prompt")
    tools = [_tools(prompt.body) for prompt in (d.a, d.b)]
    if tools[0] != tools[1]:
        found.append("other tools" if tools[1] else "no tools")
    return " and ".join(found) or None


def _tools(body: dict[str, Any] | None) -> Any:
    return (body or {}).get("tools") or None


def _asks(turns: list[Turn]) -> bool:
    """Whether the system prompt, or the last message of the user, asks for a summary of a conversation."""
    users = [turn for turn in turns if turn.role == "user"]
    said = [turn.text[:_LOOK] for turn in [*turns[: head(turns)], *users[-1:]]]
    return any(_ASKS.search(text) and _OF.search(text) and not _SMALL.search(text) for text in said)


def _holds(a: list[Turn], b: list[Turn], text: str) -> bool:
    """Whether the second prompt has the conversation of the first: its messages, or their text in one of its own."""
    said = [turn for turn in a[head(a) :] if len(turn.text) >= _LONG]
    there = {turn.key for turn in b}
    return any(turn.key in there or turn.text in text for turn in said)
