"""The RAM prompt cache of a llama-server (``--cache-ram``): states of slots, until one is restored or evicted.

Source: PR #16391, #17078 and the prompt cache up to b11549.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.content import Cause, ReplayContent
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree

LEAST_KEPT = 0.25
"""Share of an entry that a prompt must keep for the entry to be restored."""

Lose = Callable[[ReplayContent, Cause], None]


class RamPeak(NamedTuple):
    """Maximum memory of all entries, including the one being saved."""

    bytes: float
    """Bytes; infinite if an entry was refused or evicted."""
    tokens: int


class RamEntries:
    """The entries of one build with its limits, the oldest first."""

    def __init__(self, settings: ServerSettings, tree: PromptTree, lose: Lose) -> None:
        """Start empty. ``lose`` is told of every content that is dropped, and why."""
        self._shared, self._lasts, self._lose = tree.shared, tree.lasts, lose
        self._build, self._limit, self._context = settings.build, settings.ram_bytes, settings.context
        self._each, self._fixed, self._saved = settings.token_bytes, settings.state_bytes, settings.checkpoint_bytes
        self.entries: dict[int, tuple[ReplayContent, float]] = {}
        """Content and size by entry number; entries are numbered in the order in which they are made."""
        self._places: list[int] = []
        """Positions of the entries' texts in tree order. No entry begins with another: an entry that extends one
        replaces it."""
        self._numbers: list[int] = []
        """Numbers of the entries, in the same order."""
        self.known: set[int] = set()
        """Indexes of the entries' texts in the tree."""
        self._bytes = 0.0
        self._tokens = 0
        self.made = 0
        """Number of entries that were ever made."""
        self.most = 0.0
        """Peak bytes of all entries since this was set, including the one being made."""
        self._peak = RamPeak(0.0, 0)
        self._is_short = False
        """An entry was refused or evicted."""

    @property
    def bytes(self) -> float:
        """Memory of all entries."""
        return self._bytes

    @property
    def peak(self) -> RamPeak:
        """Maximum memory of all entries."""
        return self._peak._replace(bytes=float("inf")) if self._is_short else self._peak

    def has_more(self, place: int, least: int) -> bool:
        """Whether an entry shares more than ``least`` tokens with the prompt at this place."""
        places, shared = self._places, self._shared
        at = bisect_left(places, place)
        return (at < len(places) and shared(place, places[at]) > least) or (
            at > 0 and shared(places[at - 1], place) > least
        )

    def save(self, content: ReplayContent) -> bool:
        """Save a slot's content; False if it is refused, so that only the slot contains it."""
        text, tokens = content.text, content.tokens
        if text in self.known:
            return True
        if tokens == 0:
            return False
        size = self._each * tokens + self._fixed + self._saved * len(content.saved)
        if size > self._limit and self._build >= 10068:
            self._is_short = True
            return False
        places, place = self._places, content.place
        at = bisect_left(places, place)
        if at < len(places) and places[at] <= self._lasts[place]:
            return True
        if at and place <= self._lasts[places[at - 1]]:
            self._take(self._numbers[at - 1])  # what continues from it has all of it
        while self._build >= 10068 and self.entries and self._bytes + size > self._limit:
            self._drop_oldest("too small")
        at = bisect_left(places, place)
        places.insert(at, place)
        self._numbers.insert(at, self.made)
        self.entries[self.made] = content, size
        self.known.add(text)
        self._bytes += size
        self._tokens += tokens
        self.made += 1
        if self._bytes > self.most:
            self.most = self._bytes
        if self._bytes > self._peak.bytes or self._tokens > self._peak.tokens:
            self._peak = RamPeak(max(self._bytes, self._peak.bytes), max(self._tokens, self._peak.tokens))
        return True

    def load(self, place: int, slot: ReplayContent, best: int) -> ReplayContent | None:
        """Remove and return the entry that matches a prompt better than its slot's content does.

        ``place`` is the prompt's place, ``best`` the tokens that it shares with the slot.
        """
        places, entries, shares = self._places, self.entries, self._shared
        keep = best / slot.tokens if slot.tokens else (-1.0 if self._build >= 8672 else float("nan"))
        right = bisect_left(places, place)
        left = right - 1
        better = []
        while right < len(places) and (shared := shares(place, places[right])) > best:
            better.append((self._numbers[right], shared))
            right += 1
        while left >= 0 and (shared := shares(places[left], place)) > best:
            better.append((self._numbers[left], shared))
            left -= 1
        found = -1
        for number, shared in sorted(better):
            kept = shared / entries[number][0].tokens
            if kept >= LEAST_KEPT and kept > keep and shared > best:
                keep, best, found = kept, shared, number
        return None if found < 0 else self._take(found)

    def trim(self) -> None:
        """Evict the oldest entries until the limits in bytes and tokens are kept."""
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
        """Forget all entries."""
        while self.entries:
            self._drop_oldest(why)

    def _drop_oldest(self, why: Cause) -> None:
        self._is_short = self._is_short or why == "too small"
        self._lose(self._take(next(iter(self.entries))), why)

    def _take(self, number: int) -> ReplayContent:
        content, size = self.entries.pop(number)
        at = bisect_left(self._places, content.place)
        del self._places[at], self._numbers[at]
        self.known.discard(content.text)
        self._bytes -= size
        self._tokens -= content.tokens
        return content
