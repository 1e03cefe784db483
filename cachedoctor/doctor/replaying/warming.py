"""The request that warms what conversations begin with: the head of one of them, up to its last common message."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.prompts import request_bodies
from cachedoctor.prompts.prompt import CHAT, Prompt

_FILLER = {"role": "user", "content": "ok"}
"""APIs want a message of the user; what comes before it is warmed."""


class Warming(msgspec.Struct):
    """A request that computes a common beginning."""

    prompt: int
    """Index of the prompt in the tree."""
    path: str
    """The request that begins with it: ``bodies.jsonl#4``."""
    messages: int
    """Messages that are kept of it, a system message among them; tools and system prompt are kept whole."""
    common: int
    """Tokens that all conversations which begin alike share with it."""
    alike: int
    """Conversations that begin like it."""
    conversations: int
    user_starts: tuple[int, ...] = ()
    """Token index at which each of its user messages begins, where builds make checkpoints."""


def warming(
    tree: PromptTree,
    firsts: Sequence[tuple[Prompt, int]],
    tokens: Callable[[Prompt], tuple[Sequence[int], tuple[int, ...]]],
) -> Warming | None:
    """Make it of the first prompts of all conversations; None where no two begin alike behind a whole head.

    Args:
        tree: has all prompts; the new one is added.
        firsts: of every conversation the first prompt, as it was read, with its id in the tree.
        tokens: renders a prompt; gives its tokens, and at which of them each user message begins.
    """
    usable = [(one, number) for one, number in firsts if one.kind in CHAT and one.body is not None]
    heads: dict[str, list[int]] = {}
    for place, (one, _) in enumerate(usable):
        heads.setdefault(_key(one, _systems(one)), []).append(place)
    group = max(heads.values(), key=len, default=[])
    if len(group) < 2:
        return None
    kept = _systems(usable[group[0]][0])
    while all(_has(usable[place][0], kept) for place in group):
        if len({_key(usable[place][0], kept + 1) for place in group}) > 1:
            break
        kept += 1
    first = usable[group[0]][0]
    ids, starts = tokens(_cut(first, kept))
    prompt = tree.add(ids)
    common = min(tree.common(prompt, usable[place][1]) for place in group)
    return Warming(prompt, first.path, kept, common, len(group), len(firsts), starts)


def _messages(one: Prompt) -> list[Any]:
    found = (one.body or {}).get("messages")
    return found if isinstance(found, list) else []


def _systems(one: Prompt) -> int:
    """System messages before the first of another role."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in _messages(one)]
    return next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(roles))


def _has(one: Prompt, number: int) -> bool:
    """Whether a message may be kept: not the last one, which is the question."""
    return number < len(_messages(one)) - 1


def _key(one: Prompt, number: int) -> str:
    """Tools, system prompt and the first messages of a body, and what else its rendering depends on."""
    body = one.body or {}
    names = ("tools", "system", "instructions", "chat_template_kwargs", "reasoning_effort", "model")
    return repr((one.kind, [body.get(name) for name in names], _messages(one)[:number]))


def _cut(one: Prompt, kept: int) -> Prompt:
    body = copy.deepcopy(one.body or {})
    body["messages"] = [*_messages(one)[:kept], _FILLER]
    return request_bodies.prompts_of(body, one.kind, one.path)[0]
