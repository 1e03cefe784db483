"""Modes of a client that take turns: a list of tools that differs from the last one and was there before.

Two prompts alone show that tools came or went; that they come back shows in the prompts before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

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
    text = f"{found.explanation}; an earlier prompt had just these: modes with other tools take turns"
    return msgspec.structs.replace(found, first=first, explanation=text)


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    return str(inner.get("name", inner.get("type", ""))) if isinstance(inner, dict) else str(inner)
