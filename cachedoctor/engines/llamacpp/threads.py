"""Which requests belong to one conversation: inferred from lengths, common prefixes, slots and RAM-cache restores.

Knows the arithmetic of prompts that grow. Knows no log line.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from cachedoctor.model import Request

KEPT = 64
"""Tokens: a request that lacks no more than this of the slot's content continues it."""
MAX_TURN = 1024
"""Tokens that a turn may add to a short conversation; a long one may grow by half. More is taken for a new one."""
MAX_THREADS = 64
"""Threads remembered per session; the one unused for longest is forgotten."""


class Thread(msgspec.Struct):
    """A conversation."""

    id: int
    total: int
    """Tokens of the last prompt + reply, as the slot held them."""
    prompt: int
    slot: int
    turns: int = 0
    last: int = 0
    """Index of its last request."""
    ended: int = 0
    """Line of the end of its last request."""
    before: int = 0
    """Its total before its last request, when that shared almost nothing with it: perhaps another conversation."""
    changed_head: bool = False
    """Its last request found its own previous turn in the slot, and most of it no longer matched."""


class Threads:
    """The conversations of one session."""

    def __init__(self) -> None:
        self._threads: dict[int, Thread] = {}
        self._next = 0
        self._side_requests = False
        """It is proven that prompts with nothing in common, though longer, were other conversations here."""

    def get(self, id: int | None) -> Thread | None:
        """Return the thread with this number, if it is still remembered."""
        return None if id is None else self._threads.get(id)

    def by_total(self, total: float, slack: float, before: int) -> Thread | None:
        """Return the newest thread that had ended near ``total`` tokens before line ``before``."""
        near = [t for t in self._threads.values() if abs(t.total - total) <= slack and t.ended < before]
        return max(near, key=lambda t: t.last, default=None)

    def split(self, total: float, slack: float, before: int) -> Thread | None:
        """Part a conversation from one that was taken for it: RAM gave back what it held before."""
        near = [t for t in self._threads.values() if t.before and abs(t.before - total) <= slack and t.ended < before]
        if not near:
            return None
        self._side_requests = True
        mistaken = max(near, key=lambda t: t.last)
        thread = Thread(self._next, mistaken.before, mistaken.before, mistaken.slot, turns=1, last=mistaken.last)
        mistaken.before = 0
        self._next += 1
        self._threads[thread.id] = thread
        return thread

    def join(self, request: Request, elsewhere: Collection[int] = ()) -> Thread | None:
        """Find the thread that the request continues; None opens a new one. Sets ``other_candidates``.

        ``elsewhere``: threads whose text other slots still hold; a request that continued one would have gone there.
        """
        prompt, start, cached = request.prompt_tokens, request.first_line, request.cached_tokens or 0
        held = self.get(request.held_thread)
        if prompt is None:
            return held if (request.f_keep or 0) >= 0.5 else None
        lcp, length = request.common_prefix_tokens, request.held_tokens
        if held is not None and length and ((lcp or 0) >= length - KEPT or length - KEPT <= cached <= length + 8):
            return held
        if cached > KEPT and (held is None or cached > held.total):  # the RAM cache brought it back unseen
            found = self.by_total(cached, 8, start)
            if found is not None:
                return found
        able = [
            t
            for t in self._threads.values()
            if t.ended < start and t.total <= prompt and prompt - t.total <= max(MAX_TURN, t.total * 0.5)
        ]
        others = [t for t in able if t is not held and t.id not in elsewhere]
        request.other_candidates = len(others)
        if held is not None and lcp is not None and length and lcp >= length * 0.5:
            # Another conversation with the same head took the slot, if this prompt can extend one that goes further.
            further = [t for t in others if t.total > lcp + KEPT] if not request.restored_from_ram else []
            return max(further, key=lambda t: t.total) if further else held
        if self._side_requests and (lcp or 0) < 0.1 * prompt and request.ram_looked:
            return None  # neither slot nor RAM cache had its beginning
        if held in able and held is not None and (not others or held.changed_head):
            return held
        if others:
            return max(others, key=lambda t: t.total)
        longer = length is not None and prompt >= length
        if held is not None and lcp is not None and (lcp >= prompt - KEPT or (longer and lcp >= 0.1 * prompt)):
            return held
        return None  # shorter, with little in common: a new conversation, perhaps with the same head

    def record(self, request: Request, thread: Thread | None, total: int) -> Thread:
        """Note the end of a request of ``thread`` (None: a new one), whose slot now holds ``total`` tokens."""
        if thread is None:
            thread = Thread(self._next, 0, 0, request.slot)
            self._next += 1
            self._threads[thread.id] = thread
            if len(self._threads) > MAX_THREADS:
                del self._threads[next(iter(self._threads))]
        else:  # the one used last stands last
            self._threads[thread.id] = self._threads.pop(thread.id, thread)
        kept = request.common_prefix_tokens or request.cached_tokens or 0
        thread.changed_head = thread.turns > 0 and request.held_thread == thread.id and kept < 0.5 * thread.total
        thread.before = thread.total if thread.changed_head else 0
        thread.total = total
        thread.prompt = request.prompt_tokens or total
        thread.slot = request.slot
        thread.turns += 1
        thread.ended = request.last_line
        thread.last = request.index
        return thread
