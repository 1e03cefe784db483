"""Which of many prompts follows which, and clients that alternate between two modes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model import PromptDiff
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.prompt import Prompt

_KINDS = ("tool-added", "tool-removed")


def tool_names(prompt: Prompt) -> tuple[str, ...]:
    """The names of the tools of a request, in their order; none for a text, whose tools a template wrote."""
    tools = (prompt.body or {}).get("tools")
    return tuple(_name(tool) for tool in tools) if isinstance(tools, list) else ()


def told(found: PromptDiff, a: Prompt, b: Prompt, earlier: Iterable[tuple[str, ...]]) -> PromptDiff:
    """The same answer, as a switch of modes where the conversation had the tools of ``b`` before those of ``a``.

    ``earlier`` are the names of the tools in the prompts before ``a``.
    """
    first, names = found.first, tool_names(b)
    if first is None or first.kind not in _KINDS or not names or names not in set(earlier):
        return found
    known = client_habits.known("mode-switched", first.field, a, b, first.char)
    first = msgspec.structs.replace(
        first,
        kind="mode-switched",
        advice=advise("mode-switched", first.field, known),
        client=client_habits.named(known),
    )
    text = f"{found.explanation}; an earlier prompt had exactly these tools, so modes with different tools alternate"
    return msgspec.structs.replace(found, first=first, explanation=text)


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    return str(inner.get("name", inner.get("type", ""))) if isinstance(inner, dict) else str(inner)


LOOK_BACK = 64
"""Earlier prompts that a prompt is compared with: more conversations than any server has slots."""
LONG_PART = 24
"""Length in code points from which a part is unlikely to occur in two conversations by chance."""
SAME_TEXT = 0.5
"""Share of the shorter of two texts without turns that must be a common prefix."""

COMPACTED = 3
"""Minimum turns after a history was replaced by its summary: the summary, a reply to it, the next user message."""

# Tokens that open or close a turn in the chat templates in use.
_TURN = late(
    r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜\n]{1,40}｜>|</?start_of_turn>|<end_of_turn>|\[/?INST\]|\[/?SYSTEM_PROMPT\]"
)


class Outline(msgspec.Struct):
    """A prompt as a sequence of turns."""

    head: int
    """Hash of what comes before the conversation: tools and system prompt."""
    prefixes: list[int]
    """Hash of the first n turns, for each n."""
    long: set[int]
    """Hashes of the turns that are long enough to identify a conversation."""
    last: int
    """Hash of the last turn, 0 without one."""
    text: str


def walk(prompts: list[Prompt]) -> list[tuple[int, int]]:
    """Pairs of indexes (earlier, later) of consecutive prompts of a conversation, by the later one."""
    outlines: list[Outline] = []
    pairs: list[tuple[int, int]] = []
    for index, prompt in enumerate(prompts):
        current = outline(prompt)
        first = max(0, index - LOOK_BACK)
        earlier = before(outlines[first:], current)
        if earlier is not None:
            pairs.append((first + earlier, index))
        outlines.append(current)
    return pairs


def before(outlines: list[Outline], current: Outline) -> int | None:
    """Index of the prompt that another one follows: of those that share most with it the last; None if there is
    none."""
    best: tuple[int, int, bool, int] | None = None
    for index, earlier in enumerate(outlines):
        score = shared_with(earlier, current)
        if score is not None and (best is None or (*score, index) >= best):
            best = (*score, index)
    return None if best is None else best[3]


def shared_with(a: Outline, b: Outline) -> tuple[int, int, bool] | None:
    """How much of a conversation two prompts share; None if they belong to different ones."""
    limit = min(len(a.prefixes), len(b.prefixes))
    # The hashes of prefixes agree up to the first different turn and never after it, so that they can be bisected.
    lead = bisect_left(range(limit), True, key=lambda n: a.prefixes[n] != b.prefixes[n])
    shared = 0
    if lead == 0:
        shared = len(a.long & b.long)
        # A title or a summary has another head and ends with what the conversation said before: a request of its own.
        if a.head != b.head and b.last in a.long:
            return None
        if limit == 0:
            shorter = min(len(a.text), len(b.text))
            shared = shorter > 0 and common_prefix(a.text, b.text) >= shorter * SAME_TEXT
        # A new conversation opens with one turn; several unknown turns after a known head are a compacted one.
        if not shared and not (a.head == b.head and len(b.prefixes) >= COMPACTED):
            return None
    return lead, int(shared), a.head == b.head


def outline(prompt: Prompt) -> Outline:
    """Give a prompt as a sequence of turns."""
    head, turns = _messages(prompt) or _segments(prompt.text)
    prefixes: list[int] = []
    state = 0
    for turn in turns:
        state = hash((state, turn))
        prefixes.append(state)
    long = {hash(turn) for turn in turns if len(turn) >= LONG_PART}
    last = hash(turns[-1]) if turns else 0
    return Outline(hash(head), prefixes, long, last, "" if turns else prompt.text)


def _messages(prompt: Prompt) -> tuple[str, list[str]] | None:
    """Head and turns of a body, by the places of its spans; a rendered body keeps its message list."""
    body = prompt.body
    items: Any = None if body is None else body.get("messages", body.get("input"))
    if not isinstance(items, list):
        return None
    head = [repr(body.get(name)) for name in ("system", "instructions", "tools")] if body else []
    turns: list[str] = []
    for item in items:
        role = item.get("role") if isinstance(item, dict) else None
        if role in ("system", "developer") and not turns:
            head.append(repr(item))
        else:
            turns.append(_flat(item))
    return "".join(head), turns


def _flat(item: Any) -> str:
    """A turn without what moves from request to request though no server renders it."""
    if isinstance(item, dict):
        return "".join(f"{key}={_flat(value)};" for key, value in item.items() if key not in ("cache_control", "id"))
    if isinstance(item, list):
        return "".join(_flat(part) for part in item)
    return str(item)


def _segments(text: str) -> tuple[str, list[str]]:
    """Head and turns of a rendered prompt."""
    pieces = [piece for piece in (part.strip() for part in _TURN.split(text)) if piece]
    if len(pieces) < 2:
        return text, []
    return pieces[0], pieces[1:]
