"""System messages of the conversation that were moved to its front, where each makes the head longer. Knows turns."""

from __future__ import annotations

import re

from cachedoctor.prompts.recognisers.base import Difference, Recognition, shown
from cachedoctor.prompts.recognisers.edited_messages import Histories, histories
from cachedoctor.prompts.recognisers.turns import Turn, head

_TOOLS = re.compile(r"(?<!\s)\s*+(?:(?<!#)#++ Tools\b|<tools>|\[AVAILABLE_TOOLS\]|(?<!#)#++ Functions\b|<functions>)")
"""What templates write into the system message behind the client's own text."""


def system_hoisted(d: Difference) -> Recognition | None:
    """Text was added exactly where the system prompt ended, while the conversation went on behind it as it was.

    A client that adds to its own system prompt looks the same, so it is never sure.
    """
    h = histories(d)
    if h is None or not h.heads:
        return None
    heads = head(h.b)
    said, now = h.a[h.heads :], h.b[heads:]
    if len(now) <= len(said) or [turn.key for turn in said] != [turn.key for turn in now[: len(said)]]:
        return None
    added = _added(h, heads)
    if not added:
        return None
    count = "a message" if heads - h.heads <= 1 else f"{heads - h.heads} messages"
    text = f"{count} more stands at the end of the system prompt, and the conversation goes on as it was"
    if heads - h.heads > 1:
        text = text.replace("stands", "stand")
    return Recognition("system-hoisted", "", shown(added), text, "system", False)


def _added(h: Histories, heads: int) -> str:
    """The text behind the first prompt's system prompt; empty where that itself changed."""
    if h.at == h.heads and heads > h.heads:
        return h.b[h.heads].text
    if h.at != h.heads - 1 or heads < h.heads:
        return ""
    more = "".join(turn.text for turn in h.b[h.heads : heads])
    return _behind(h.a[h.at], h.b[h.at]) or (more if h.a[h.at].key == h.b[h.at].key else "")


def _behind(old: Turn, new: Turn) -> str:
    """The lines that the new system message has between the client's text of the old one and the template's tools."""
    tools = _TOOLS.search(old.text)
    own, rest = (old.text, "") if tools is None else (old.text[: tools.start()], old.text[tools.start() :])
    own = own.rstrip()
    if not own or len(new.text) <= len(old.text) or not new.text.startswith(own) or not new.text.endswith(rest):
        return ""
    added = new.text[len(own) : len(new.text) - len(rest)]
    return added.strip() if added.lstrip(" ").startswith("\n") else ""
