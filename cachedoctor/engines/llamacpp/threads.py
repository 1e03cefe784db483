"""Which requests belong to one conversation: inferred from lengths, common prefixes, slots and RAM-cache restores.

Knows the arithmetic of prompts that grow. Knows no log line.
"""

from __future__ import annotations

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
    gone: int | None = None
    """Line at which its slot lost what it held; None while that stands."""
    changed_head: bool = False
    """Its last request found its own previous turn in the slot, and most of it no longer matched."""


class Threads:
    """The conversations of one session."""

    def __init__(self) -> None:
        self._threads: dict[int, Thread] = {}
        self._next = 0
        self.idle_slots_keep = True
        """False once the server clears idle slots at every launch."""
        self._by_similarity = False

    def get(self, id: int | None) -> Thread | None:
        """Return the thread with this number, if it is still remembered."""
        return None if id is None else self._threads.get(id)

    def by_total(self, total: float, slack: float, before: int) -> Thread | None:
        """Return the newest thread that had ended near ``total`` tokens before line ``before``."""
        near = [t for t in self._threads.values() if abs(t.total - total) <= slack and t.ended < before]
        return max(near, key=lambda t: t.last, default=None)

    def emptied(self, slot: int, line: int) -> None:
        """Note that a slot lost what it held."""
        for thread in self._threads.values():
            if thread.slot == slot and thread.gone is None:
                thread.gone = line

    def _stood_by(self, request: Request, thread: Thread) -> bool:
        """An idle slot held the thread while another was chosen by age: by similarity it would have been that one."""
        by_age = request.t_last == -1 or (request.t_last is not None and self._by_similarity)
        if not by_age or not self.idle_slots_keep or thread.slot == request.slot:
            return False
        return thread.gone is None or thread.gone > request.first_line

    def join(self, request: Request) -> Thread | None:
        """Find the thread that the request continues; None opens a new one. Sets ``other_candidates``."""
        prompt, start, cached = request.prompt_tokens, request.first_line, request.cached_tokens or 0
        held = self.get(request.held_thread)
        self._by_similarity = self._by_similarity or request.selected_by == "lcp"
        if prompt is None:
            return held if (request.f_keep or 0) >= 0.5 else None
        lcp = request.common_prefix_tokens
        length = request.held_tokens
        if held is not None and lcp is not None and length and (lcp >= length - KEPT or lcp >= length * 0.5):
            return held
        if cached > KEPT and (held is None or cached > held.total):  # the RAM cache brought it back unseen
            found = self.by_total(cached, 8, start)
            if found is not None:
                return found
        able = [
            t for t in self._threads.values()
            if t.ended < start and t.total <= prompt and prompt - t.total <= max(MAX_TURN, t.total * 0.5)
            and not self._stood_by(request, t)
        ]  # fmt: skip
        request.other_candidates = sum(t is not held for t in able)
        others = [t for t in able if t is not held]
        if held in able and held is not None and (not others or held.changed_head):
            return held
        if others:
            return max(others, key=lambda t: t.total)
        if held is not None and lcp is not None and lcp >= 0.1 * prompt:
            return held
        return None

    def record(self, request: Request, thread: Thread | None, total: int) -> Thread:
        """Note the end of a request of ``thread`` (None: a new one), whose slot now holds ``total`` tokens."""
        self.emptied(request.slot, request.first_line)
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
        thread.total = total
        thread.prompt = request.prompt_tokens or total
        thread.slot, thread.gone = request.slot, None
        thread.turns += 1
        thread.ended = request.last_line
        thread.last = request.index
        return thread
