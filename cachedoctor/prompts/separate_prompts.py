"""Tells which prompts without any reply are separate, although they share much of their text."""

from __future__ import annotations

from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import PromptDiff
from cachedoctor.prompts import bare_texts
from cachedoctor.prompts.align.align import common_suffix
from cachedoctor.prompts.prompt import Prompt

SAME = 0.75
"""Share of a message that stays if something is written into it."""
ALL_NEW = 0.1
"""Share of a text that is also in another one by chance: what a template writes, and a short instruction."""
_BY_CHANCE = 64
"""Bytes that two texts have in common by chance."""
LEAST_MARK = 6
"""Letters and digits of a mark that a program writes around what users say."""
_REACH = 64
"""Letters and digits of the longest one."""
_WORD, _WORD_END = late(r"\w*"), late(r"\w*\Z")


def said(prompt: Prompt) -> list[dict[str, Any]]:
    """The messages of a body behind its system prompt."""
    items = (prompt.body or {}).get("messages")
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [item for item in found if item.get("role") not in ("system", "developer")]


def _are_of_users(messages: list[dict[str, Any]]) -> bool:
    """Whether no message is a reply or the result of a tool."""
    return all(message.get("role") == "user" for message in messages)


def is_asked_anew(found: PromptDiff, before: Prompt, prompt: Prompt) -> bool:
    """Whether a prompt without any reply is sent again after rewritten instructions, or with another document.

    A changed time, number or list of tools does not count as rewritten text, nor does a mostly unchanged document.
    """
    first, now, earlier = found.first, said(prompt), said(before)
    if first is None or first.kind != "message-edited" or not now or not _are_of_users(now + earlier):
        return False
    rest = len(prompt.text) - first.char
    replaced = found.sent_again is not None and found.sent_again <= max(_BY_CHANCE, ALL_NEW * rest)
    return now == earlier or (replaced and first.char >= (opening(prompt) or 0))


def opening(prompt: Prompt) -> int | None:
    """Where the first message of a prompt without any reply begins, or the text before an editor's cursor; None for a
    conversation, and for any other text."""
    if bare_texts.fills_in(prompt):
        return 0
    now = said(prompt)
    if not now or not _are_of_users(now):
        return None
    items = (prompt.body or {})["messages"]
    place = f"messages[{items.index(now[0])}]"
    return next((span.start for span in prompt.spans if span.place.startswith(place)), None)


def has_its_reply(before: Prompt, prompt: Prompt) -> bool:
    """Whether a prompt has every message of another one, most of it word for word, and a reply to it as its own."""
    earlier, now = said(before), said(prompt)
    at = len(earlier)
    if not 0 < at < len(now) or now[at].get("role") != "assistant":
        return False
    return all(_is_the_same(one, other) for one, other in zip(earlier, now, strict=False))


def _is_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a message is another one, or that one with one short place changed."""
    if one == other:
        return True
    first, second = str(one.get("content")), str(other.get("content"))
    kept = common_prefix(first, second)
    mark, another = _mark(first, kept), _mark(second, kept)
    if min(len(mark), len(another)) >= LEAST_MARK:  # written at both ends, or more often
        first = first.replace(mark, another)
        kept = common_prefix(first, second)
    kept += common_suffix(first, second, min(len(first), len(second)) - kept)
    return one.get("role") == other.get("role") and kept >= SAME * max(len(first), len(second))


def _mark(text: str, at: int) -> str:
    """The letters and digits around a place."""
    left, right = text[max(0, at - _REACH) : at], text[at : at + _REACH]
    return _WORD_END.search(left)[0] + _WORD.match(right)[0]  # type: ignore[index]
