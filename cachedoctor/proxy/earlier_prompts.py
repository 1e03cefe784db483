"""The last prompts that passed, and which of them a new one follows. Knows prompts; knows no bytes and no server."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from cachedoctor.prompts import conversations, mode_switches
from cachedoctor.prompts.prompt import Prompt

MOST_BYTES = 24 << 20
"""Bytes of the bodies whose prompts are kept; a prompt takes a few times its body."""


class Earlier(msgspec.Struct):
    """A prompt that passed."""

    prompt: Prompt
    sent: float
    size: int
    """Bytes of its body."""
    conversation: int
    prompt_tokens: int | None
    """As the server counted them."""
    tools: list[tuple[str, ...]]
    """Names of its tools, then of those of the prompts before it in its conversation."""
    fixed: Prompt | None = None
    """What fixes that were only tried would have made of it; None where they would have changed nothing."""
    reply: dict[str, Any] | None = None
    """The answer, as clients send it back; None where it is not told."""


class EarlierPrompts:
    """As many as ``diff`` looks back, and no more than fit."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Earlier, conversations.Outline]] = deque()
        self._size = 0
        self._count = 0

    def follow(self, new: Earlier) -> Earlier | None:
        """Give the prompt that a new one follows, and keep the new one; numbers its conversation."""
        outline = conversations.outline(new.prompt)
        # Answers end in another order than requests begin.
        older = [(earlier, known) for earlier, known in self._kept if earlier.sent <= new.sent]
        index = conversations.before([known for _, known in older], outline)
        found = None if index is None else older[index][0]
        if found is None:
            self._count += 1
        new.conversation = self._count if found is None else found.conversation
        names = [] if found is None else found.tools[: conversations.LOOK_BACK - 1]
        new.tools = [mode_switches.tool_names(new.prompt), *names]
        self._keep(new, outline)
        return found

    def _keep(self, new: Earlier, outline: conversations.Outline) -> None:
        if new.size > MOST_BYTES:
            return
        self._kept.append((new, outline))
        self._size += new.size
        while len(self._kept) > conversations.LOOK_BACK or self._size > MOST_BYTES:
            self._size -= self._kept.popleft()[0].size
