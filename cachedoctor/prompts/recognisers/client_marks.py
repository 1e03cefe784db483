"""What clients add to requests: billing headers, salts and adapters, requests for a summary."""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.recognisers.base import FirstDifference, Recognition, snippet
from cachedoctor.prompts.recognisers.edited_messages import Histories, of_bodies, of_texts
from cachedoctor.prompts.recognisers.turns import MessageTurn, head

NAME = "x-anthropic-billing-header:"
HEADER = late(NAME + r"(?:[ \t]*[A-Za-z_][\w-]*=[^;\s]*;)*(?:[ \t]*[A-Za-z_][\w-]*=[^;\s]*)?")
_FIELD = late(r"(?<![\w-])([A-Za-z_][\w-]*)=([^;\s]*)")
_REACH = 1000
"""Code points before the offset in which the header must begin; the longest one seen has 300."""
_WHY = {
    "cch": "cch is a checksum of the request, so it changes with every request",
    "cc_version": "the suffix of cc_version depends on the first user message, so it changes with every "
    "conversation and subagent",
    "cc_prev_req": "cc_prev_req identifies the previous request, so it changes with every turn",
    "cc_prompt_id": "cc_prompt_id is new for every user prompt",
    "cc_entrypoint": "cc_entrypoint shows how Claude Code was started: two programs share this server",
    "cc_workload": "cc_workload shows what the request is for",
    "cc_is_subagent": "cc_is_subagent appears only in requests of subagents",
}


def billing_header(d: FirstDifference) -> Recognition | None:
    """The texts diverge inside the header, or only one of them has it there."""
    a, b = _header(d, d.a.text), _header(d, d.b.text)
    if a is None and b is None:
        return None
    if a is None or b is None:
        side = "first" if b is None else "second"
        text = f"only the {side} prompt has a billing header here"
        return Recognition("billing-header", a or "", b or "", text)
    values_a, values_b = dict(_FIELD.findall(a)), dict(_FIELD.findall(b))
    for name in dict.fromkeys([*values_a, *values_b]):
        old, new = values_a.get(name), values_b.get(name)
        if old != new:
            why = _WHY.get(name, f"{name} changed")
            if old is None or new is None:
                why = f"only one of the prompts has {name} in its billing header"
            return Recognition("billing-header", old or "", new or "", why, name)
    if a == b:
        return None  # equal headers at the same place: the difference is right after them
    return Recognition("billing-header", a, b, "the fields of the billing header are in a different order")


def _header(d: FirstDifference, text: str) -> str | None:
    start = text.rfind(NAME, max(0, d.offset - _REACH), d.offset + len(NAME))
    if start < 0 or start > d.offset:
        return None
    match = HEADER.match(text, start, start + 2 * _REACH)
    return match.group() if match and d.offset <= match.end() else None


_SALTS = ("cache_salt", "extra_key")
_ADAPTERS = ("lora", "lora_path")


def cache_salt(d: FirstDifference) -> Recognition | None:
    """The prompts are the same, their salts are not."""
    name = _differs(d, _SALTS)
    text = f"the prompts are the same but {name} differs: they share no cached tokens"
    return None if name is None else Recognition("cache-salt", "", "", text, name)


def adapter(d: FirstDifference) -> Recognition | None:
    """The prompts are the same, the adapters they ask for are not."""
    name = _differs(d, _ADAPTERS)
    text = f"the prompts are the same but the adapters ({name}) differ: neither can use the other's cached tokens"
    return None if name is None else Recognition("adapter", "", "", text, name)


def _differs(d: FirstDifference, names: tuple[str, ...]) -> str | None:
    if not d.same_text or d.a.body is None or d.b.body is None:
        return None
    return next((name for name in names if d.a.body.get(name) != d.b.body.get(name)), None)


_ASKS = late(r"\bsummar(?:y|ies|i[sz]e|i[sz]ing|i[sz]ation)\b|\bcompact(?:ion|ing)?\b|\bhandoff\b", re.I)
_OF = late(r"\b(?:conversations?|sessions?|transcript|chat|history|messages|task)\b", re.I)
_SMALL = late(r"\btitles?\b|\btopics?\b|\btags\b|\b\d+[ -](?:words?|characters?)\b", re.I)
"""Words of a request for a title or tags: also a summary, but a separate request that compacts nothing."""
_LOOK = 600
"""Code points at the beginning of a message within which it states its request."""
_LONG = 24
"""Code points from which a message is unlikely to be in two conversations by chance."""


def compaction_request(d: FirstDifference) -> Recognition | None:
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


def _other_head(d: FirstDifference, h: Histories) -> str | None:
    """Parts of the head of the second prompt that differ from the first, in words."""
    found = []
    if [turn.key for turn in h.a[: h.heads]] != [turn.key for turn in h.b[: head(h.b)]]:
        found.append("another system prompt" if head(h.b) else "no system prompt")
    tools = [_tools(prompt.body) for prompt in (d.a, d.b)]
    if tools[0] != tools[1]:
        found.append("other tools" if tools[1] else "no tools")
    return " and ".join(found) or None


def _tools(body: dict[str, Any] | None) -> Any:
    return (body or {}).get("tools") or None


def _asks(turns: list[MessageTurn]) -> bool:
    """Whether the system prompt, or the last message of the user, asks for a summary of a conversation."""
    users = [turn for turn in turns if turn.role == "user"]
    said = [turn.text[:_LOOK] for turn in [*turns[: head(turns)], *users[-1:]]]
    return any(_ASKS.search(text) and _OF.search(text) and not _SMALL.search(text) for text in said)


def _holds(a: list[MessageTurn], b: list[MessageTurn], text: str) -> bool:
    """Whether the second prompt has the conversation of the first: its messages, or their text in one of its own."""
    said = [turn for turn in a[head(a) :] if len(turn.text) >= _LONG]
    there = {turn.key for turn in b}
    return any(turn.key in there or turn.text in text for turn in said)
