"""What is remembered of a session's requests, and how fast its server computes prompts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

import msgspec

from cachedoctor.model import Judged, Request

_T = TypeVar("_T", Judged, Request)

LEAST = 256
"""Tokens: shorter prompts are mostly overhead and do not show the speed."""
SAMPLES = 4
"""Requests from which on a slope is trusted."""
SPREAD = 0.25
"""Standard deviation of the depths, as a share of their mean, below which no slope can be estimated."""


class PromptSpeed:
    """Weighted regression of milliseconds per token on depth (middle of the computed span, tokens), weight: tokens."""

    __slots__ = ("count", "depth", "depth2", "per_token", "product", "weight")

    def __init__(self, count: int = 0, weight: float = 0.0, per_token: float = 0.0) -> None:
        self.count, self.weight, self.per_token = count, weight, per_token
        self.depth = self.depth2 = self.product = 0.0

    def learn(self, request: Request) -> None:
        """Take a request's timing."""
        tokens, ms = request.processed_tokens, request.prompt_ms
        if not tokens or not ms or tokens < LEAST:
            return
        start = request.cached_tokens or 0
        middle = (start + start + tokens) / 2
        area = tokens * middle
        self.count += 1
        self.weight += tokens
        self.depth += area
        self.depth2 += area * middle
        self.per_token += ms
        self.product += ms * middle

    @property
    def slope(self) -> float:
        """Rise of the time per token with each token of depth, as a share of the time at depth 0; 0: unknown."""
        if self.count < SAMPLES:
            return 0.0
        mean = self.depth / self.weight
        variance = self.depth2 / self.weight - mean * mean
        if variance < (SPREAD * mean) ** 2:
            return 0.0
        rise = (self.product / self.weight - mean * self.per_token / self.weight) / variance
        base = self.per_token / self.weight - rise * mean
        return rise / base if rise > 0 and base > 0 else 0.0

    def cost(self, request: Request, tokens: int) -> tuple[float, bool]:
        """Milliseconds that the first ``tokens`` of what this request computed took; 0 when its time is unknown.

        And whether the speed at that depth is known, not only the mean speed of the request.
        """
        computed, ms = request.processed_tokens, request.prompt_ms
        if not tokens or not computed or not ms:
            return 0.0, False
        slope = self.slope
        twice, saved = 2 * (request.cached_tokens or 0), min(tokens, computed)
        part, whole = saved * (1 + slope * (twice + saved) / 2), computed * (1 + slope * (twice + computed) / 2)
        return ms * part / whole, slope > 0


WINDOW = 8
"""Requests of a thread that a rule can look back on."""
MAX_THREADS = 64
"""Threads remembered per session, as the tracker remembers them; the one unused for longest is forgotten."""
_FINAL = 64
"""Requests after which a request is not reported again; of a slot's older requests only the last is remembered."""


class FindingHistory(msgspec.Struct, gc=False):
    """The last requests of each thread and slot, and how fast prompts are computed."""

    threads: dict[int, deque[Judged]] = msgspec.field(default_factory=dict)
    slots: dict[int, deque[Request]] = msgspec.field(default_factory=dict)
    """What each slot served, in the order of the requests."""
    speed: PromptSpeed = msgspec.field(default_factory=PromptSpeed)
    latest: int | None = None
    """Thread that was used last; it is the last one in ``threads``."""
    known: set[int] = msgspec.field(default_factory=set)
    """Numbers of all threads so far."""
    steals: int = 0
    settled: set[tuple[int, str]] = msgspec.field(default_factory=set)
    """Threads, and codes of the rules that decided what they had left open of them."""
    returns: bool = False
    """The RAM cache restored a conversation whose slot held another one."""

    def remember(self, judged: Judged) -> None:
        """Take a request; the rules have been asked about it."""
        request = judged.request
        number, thread, held, served = request.index, request.thread, request.held_thread, self.slots.get(request.slot)
        if held != thread or request.restored_from_ram:
            self.returns = self.returns or _came_back(request)
        if not served:
            self.slots[request.slot] = deque((request,), maxlen=_FINAL)
        else:
            late, final = served[-1].index >= number, number - _FINAL
            served.append(request)
            if late:
                _order(served, _number)
            while served[1].index < final:  # the last one is not
                served.popleft()
        if thread is not None:
            turns = self.threads[thread] if thread == self.latest else self._use(thread)
            turns.append(judged)
            if len(turns) > 1 and turns[-2].request.index >= number:
                _order(turns, _number_of_judged)

    def _use(self, thread: int) -> deque[Judged]:
        """Put a thread last, and give its requests; of too many threads the one unused for longest is forgotten."""
        queue = self.threads.pop(thread, None)
        if queue is None:
            if len(self.threads) >= MAX_THREADS:
                del self.threads[next(iter(self.threads))]
            queue = deque(maxlen=WINDOW)
            self.met(thread)
        self.threads[thread] = queue
        self.latest = thread
        return queue

    def settle(self, request: Request, code: str) -> list[Request]:
        """Note that a rule decided; returns the requests of the thread of which it spoke, and that still change."""
        thread = request.thread
        if thread is None or (thread, code) in self.settled:
            return []
        self.settled.add((thread, code))
        return [
            one.request
            for one in self.threads.get(thread, ())
            if code in one.verdict.codes and 0 < request.index - one.request.index < _FINAL
        ]

    def is_settled(self, thread: int | None, code: str) -> bool:
        """Whether a rule decided what it had left open of a thread."""
        return (thread, code) in self.settled

    def met(self, thread: int | None) -> int:
        """Count the threads so far, this one included."""
        if thread is not None:
            self.known.add(thread)
        return len(self.known)

    def forget(self, index: int) -> None:
        """Forget the request with this number: it is seen otherwise now."""
        for turns in self.threads.values():
            _remove(turns, index, _number_of_judged)
        for served in self.slots.values():
            _remove(served, index, _number)

    def before(self, request: Request) -> tuple[list[Judged], Request | None]:
        """Give the earlier requests of its thread, oldest first, and the last one of its slot.

        Requests may be asked about when later ones are known.
        """
        number, served = request.index, None
        thread = list(self.threads.get(request.thread, ())) if request.thread is not None else []
        while thread and thread[-1].request.index >= number:
            thread.pop()
        for earlier in reversed(self.slots.get(request.slot, ())):
            if earlier.index < number:
                served = earlier
                break
        return thread, served

    def beside(self, request: Request) -> list[Request]:
        """Give what other slots served while this request was at work."""
        first, last = request.first_line, request.last_line
        found: list[Request] = []
        for slot, queue in self.slots.items():
            if slot == request.slot:
                continue
            beside: list[Request] = []
            for r in reversed(queue):
                if r.last_line <= first:
                    break  # those that the slot served before that had ended even earlier
                if r.first_line < last:
                    beside.append(r)
            if beside:
                found += reversed(beside)
        return found

    def ended_at(self, length: int, slack: int, before: int) -> bool:
        """Whether a request with a number below ``before`` left a slot at this length, or up to ``slack`` below it."""
        return any(
            r.index < before and 0 <= length - (r.seen.released_tokens or 0) <= slack
            for served in self.slots.values()
            for r in served
        )


def _came_back(request: Request) -> bool:
    """Whether a conversation was reused though its slot had held another one."""
    held = request.held_thread
    other = request.restored_from_ram or (held is not None and held != request.thread)
    return bool(other) and request.outcome == "reused" and request.thread_turn > 0


_number = attrgetter("index")
_number_of_judged = attrgetter("request.index")


def _order(queue: deque[_T], number: Callable[[_T], int]) -> None:
    """Put requests in the order of their numbers, in which nearly all of them come."""
    ordered = sorted(queue, key=number)
    queue.clear()
    queue.extend(ordered)


def _remove(queue: deque[_T], index: int, number: Callable[[_T], int]) -> None:
    """Take the request with this number out."""
    for one in queue:
        if number(one) == index:
            queue.remove(one)
            break
