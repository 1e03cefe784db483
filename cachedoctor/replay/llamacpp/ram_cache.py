"""The RAM prompt cache of a llama-server (``--cache-ram``): states of slots, until one is taken back or pushed out.

Source: PR #16391, #17078 and the prompt cache up to b11549.
"""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.replay.llamacpp.content import Content
from cachedoctor.replay.llamacpp.served import Cause
from cachedoctor.replay.llamacpp.settings import Settings
from cachedoctor.replay.prompt_tree import PromptTree

LEAST_KEPT = 0.25
"""Share of an entry that a prompt must keep for the entry to be taken."""

Lose = Callable[[Content, Cause], None]


class RamCache:
    """The entries, the oldest first, as one build with its limits keeps them."""

    def __init__(self, settings: Settings, tree: PromptTree, lose: Lose) -> None:
        """Start empty. ``lose`` is told of every content that is dropped, and why."""
        self._settings, self._tree, self._lose = settings, tree, lose
        self.entries: list[Content] = []
        self._sizes: list[float] = []

    def save(self, content: Content) -> bool:
        """Take what a slot holds; False where it is refused, and is nowhere but in the slot."""
        if content.tokens == 0:
            return False
        common, text, tokens = self._tree.common, content.text, content.tokens
        for one in self.entries:
            if one.tokens >= tokens and min(common(one.text, text), tokens) == tokens:
                return True
        size, limit = self._size(content), self._settings.ram_bytes
        new = self._settings.build >= 10068
        if new and size > limit:
            return False
        for index in reversed(range(len(self.entries))):
            one = self.entries[index]
            if min(common(one.text, text), tokens) >= one.tokens:  # what goes on from it has all of it
                del self.entries[index], self._sizes[index]
        while new and self.entries and sum(self._sizes) + size > limit:
            self._drop(0, "too small")
        self.entries.append(content)
        self._sizes.append(size)
        return True

    def load(self, prompt: int, length: int, slot: Content) -> Content | None:
        """Give the entry that a prompt is better served by than by what its slot holds; the cache no longer has it."""
        common = self._tree.common
        shared = min(common(slot.text, prompt), slot.tokens) if slot.tokens else 0
        keep = shared / slot.tokens if slot.tokens else (-1.0 if self._settings.build >= 8672 else float("nan"))
        similar, found = shared / length, -1
        for index, one in enumerate(self.entries):
            shared = min(common(one.text, prompt), one.tokens)
            kept = shared / one.tokens
            if kept >= LEAST_KEPT and kept > keep and shared / length > similar:
                keep, similar, found = kept, shared / length, index
        if found < 0:
            return None
        del self._sizes[found]
        return self.entries.pop(found)

    def trim(self) -> None:
        """Push out the oldest entries that are over the limits in bytes and tokens."""
        settings = self._settings
        least = 1 if settings.build < 10068 else 0
        limit, total = settings.ram_bytes, sum(self._sizes)
        while len(self.entries) > least and total > limit:
            total -= self._sizes[0]
            self._drop(0, "too small")
        tokens = sum(one.tokens for one in self.entries)
        most = float(settings.context)
        if settings.build >= 6900 and tokens:
            most = max(most, limit / max(1.0, total / tokens)) if total else float("inf")
        while len(self.entries) > least and tokens > most:
            tokens -= self.entries[0].tokens
            self._drop(0, "too small")

    def clear(self, why: Cause) -> None:
        """Forget everything."""
        while self.entries:
            self._drop(0, why)

    def _size(self, content: Content) -> float:
        settings = self._settings
        fixed = settings.state_bytes + settings.checkpoint_bytes * len(content.saved)
        return settings.token_bytes * content.tokens + fixed

    def _drop(self, index: int, why: Cause) -> None:
        self._lose(self.entries.pop(index), why)
        del self._sizes[index]
