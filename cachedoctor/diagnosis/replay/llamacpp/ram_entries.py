"""The RAM prompt cache of a llama-server (``--cache-ram``): states of slots, until one is taken back or evicted.

Source: PR #16391, #17078 and the prompt cache up to b11549.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from cachedoctor.diagnosis.replay.llamacpp.content import Cause, ReplayContent
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree

LEAST_KEPT = 0.25
"""Share of an entry that a prompt must keep for the entry to be taken."""

Lose = Callable[[ReplayContent, Cause], None]


class _Related:
    """Entries that may share something: those whose texts begin with one edge of the tree, the oldest first."""

    __slots__ = ("lengths", "numbers", "texts")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.texts: list[int] = []
        self.lengths: list[int] = []


class RamEntries:
    """The entries, the oldest first, as one build with its limits keeps them."""

    def __init__(self, settings: ServerSettings, tree: PromptTree, lose: Lose) -> None:
        """Start empty. ``lose`` is told of every content that is dropped, and why."""
        self._tree, self._lose, self._families = tree, lose, tree.families
        self._build, self._limit, self._context = settings.build, settings.ram_bytes, settings.context
        self._each, self._fixed, self._saved = settings.token_bytes, settings.state_bytes, settings.checkpoint_bytes
        self.entries: dict[int, tuple[ReplayContent, float]] = {}
        """Content and size by number, which is how many were made before."""
        self._related: dict[int, _Related] = {}
        """By family."""
        self.known: set[tuple[int, int]] = set()
        """Text and length of every entry."""
        self._bytes = 0.0
        self._tokens = 0
        self.made = 0
        """Entries that were ever made."""
        self.most = 0.0
        """Bytes of all entries at most, the one that is being made included."""

    @property
    def bytes(self) -> float:
        """What all entries take."""
        return self._bytes

    def has_more(self, prompt: int, least: int) -> bool:
        """Whether an entry shares more than ``least`` tokens with a prompt."""
        related = self._related.get(self._families[prompt])
        if related is None:
            return False
        shared = self._tree.common_with(prompt, related.texts)
        return any(min(pair) > least for pair in zip(shared, related.lengths, strict=True))

    def save(self, content: ReplayContent) -> bool:
        """Take what a slot holds; False where it is refused, and is nowhere but in the slot."""
        text, tokens = content.text, content.tokens
        if (text, tokens) in self.known:
            return True
        if tokens == 0:
            return False
        size = self._each * tokens + self._fixed + self._saved * len(content.saved)
        if size > self._limit and self._build >= 10068:
            return False
        family = self._families[text]
        related = self._related.get(family)
        if related is None:
            related = self._related[family] = _Related()
        elif related.texts:
            obsolete = []
            shares = self._tree.common_with(text, related.texts)
            for number, held, shared in zip(related.numbers, related.lengths, shares, strict=True):
                if shared >= tokens and held >= tokens:
                    return True
                if shared >= held and tokens >= held:
                    obsolete.append(number)
            for number in reversed(obsolete):  # what continues from it has all of it
                self._take(number)
        while self._build >= 10068 and self.entries and self._bytes + size > self._limit:
            self._drop_oldest("too small")
        related.numbers.append(self.made)
        related.texts.append(text)
        related.lengths.append(tokens)
        self.entries[self.made] = content, size
        self.known.add((text, tokens))
        self._bytes += size
        self._tokens += tokens
        self.made += 1
        if self._bytes > self.most:
            self.most = self._bytes
        return True

    def load(self, prompt: int, length: int, slot: ReplayContent) -> ReplayContent | None:
        """Give the entry that a prompt is better served by than by what its slot holds; the cache no longer has it."""
        related = self._related.get(self._families[prompt])
        if related is None:
            return None
        shared = min(self._tree.common(slot.text, prompt), slot.tokens) if slot.tokens else 0
        keep = shared / slot.tokens if slot.tokens else (-1.0 if self._build >= 8672 else float("nan"))
        best, found = shared, -1
        for index, shared in enumerate(self._tree.common_with(prompt, related.texts)):
            if shared <= best:
                continue
            tokens = related.lengths[index]
            shared = min(shared, tokens)
            kept = shared / tokens
            if kept >= LEAST_KEPT and kept > keep and shared > best:
                keep, best, found = kept, shared, index
        return None if found < 0 else self._take(related.numbers[found])

    def trim(self) -> None:
        """Push out the oldest entries that are over the limits in bytes and tokens."""
        if self._bytes <= self._limit and self._tokens <= self._context:
            return
        least = 1 if self._build < 10068 else 0
        while len(self.entries) > least and self._bytes > self._limit:
            self._drop_oldest("too small")
        most = float(self._context)
        if self._build >= 6900 and self._tokens:
            most = max(most, self._limit / max(1.0, self._bytes / self._tokens)) if self._bytes > 0 else float("inf")
        while len(self.entries) > least and self._tokens > most:
            self._drop_oldest("too small")

    def clear(self, why: Cause) -> None:
        """Forget everything."""
        while self.entries:
            self._drop_oldest(why)

    def _drop_oldest(self, why: Cause) -> None:
        self._lose(self._take(next(iter(self.entries))), why)

    def _take(self, number: int) -> ReplayContent:
        content, size = self.entries.pop(number)
        text, tokens = content.text, content.tokens
        related = self._related[self._families[text]]
        at = bisect_left(related.numbers, number)
        del related.numbers[at], related.texts[at], related.lengths[at]
        self.known.discard((text, tokens))
        self._bytes -= size
        self._tokens -= tokens
        return content
