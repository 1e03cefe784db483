"""How much of a logged prompt an earlier one began with. Prompts are kept for that alone, and never shown.

State is bounded: the last 64 prompts, 4 MiB of them.
"""

from __future__ import annotations

from collections import deque

from cachedoctor.knowledge.texts import longest_prefix

_PROMPTS = 64
_BYTES = 4 << 20
_LONGEST = 1 << 20
"""Bytes of one prompt that are compared."""


class Beginnings:
    """The latest prompts of one server."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque()
        self._size = 0

    def add(self, prompt: bytes) -> int | None:
        """Take a prompt; give the bytes it shares with the earlier one that shares most, None for the first one."""
        prompt = prompt[:_LONGEST]
        best = longest_prefix(prompt, reversed(self._recent))
        self._recent.append(prompt)
        self._size += len(prompt)
        while len(self._recent) > _PROMPTS or self._size > _BYTES:
            self._size -= len(self._recent.popleft())
        return best
