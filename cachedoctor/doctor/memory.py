"""What is remembered of one session's requests, for the rules to look back on. Knows requests; knows no rule."""

from __future__ import annotations

from collections import deque

import msgspec

from cachedoctor.model import Request

WINDOW = 8
"""Requests of a thread that a rule can look back on."""
MAX_THREADS = 64
"""Threads remembered per session, as the tracker remembers them; the one unused for longest is forgotten."""
_FINAL = 64
"""Requests after which nothing is said anew of one; of a slot's older ones only the last is remembered."""


class Memory(msgspec.Struct):
    """The last requests of each thread and slot."""

    threads: dict[int, deque[Request]] = msgspec.field(default_factory=dict)
    slots: dict[int, deque[Request]] = msgspec.field(default_factory=dict)
    """What each slot served, in the order of the requests."""
    n_threads: int = 0
    steals: int = 0

    def remember(self, request: Request) -> None:
        """Take a request; the rules have been asked about it."""
        served = self.slots.get(request.slot)
        if served is None:
            served = self.slots[request.slot] = deque(maxlen=_FINAL)
        _insert(served, request)
        while len(served) > 1 and served[1].index < request.index - _FINAL:
            served.popleft()
        if request.thread is not None:
            queue = self.threads.pop(request.thread, None)
            if queue is None:
                if len(self.threads) >= MAX_THREADS:
                    del self.threads[next(iter(self.threads))]
                queue = deque(maxlen=WINDOW)
            self.threads[request.thread] = queue  # the one used last stands last
            _insert(queue, request)


def _insert(queue: deque[Request], request: Request) -> None:
    """Add a request in its place: nearly always the last."""
    late = queue and queue[-1].index > request.index
    queue.append(request)
    if late:
        ordered = sorted(queue, key=lambda r: r.index)
        queue.clear()
        queue.extend(ordered)
