"""What is remembered of a session's requests, and how fast its server computes prompts."""

from __future__ import annotations

from collections import deque

import msgspec

from cachedoctor.diagnosis.rules.context import came_back, was_emptied
from cachedoctor.knowledge.decision import FRAME
from cachedoctor.model import Judged, Request

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
        middle = (request.cached_tokens or 0) + tokens / 2
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
        slope, computed, ms = self.slope, request.processed_tokens, request.prompt_ms
        if not tokens or not computed or not ms:
            return 0.0, slope > 0
        twice, saved = 2 * (request.cached_tokens or 0), min(tokens, computed)
        part, whole = saved * (1 + slope * (twice + saved) / 2), computed * (1 + slope * (twice + computed) / 2)
        return ms * part / whole, slope > 0


WINDOW = 8
"""Requests of a thread that a rule can look back on."""
MAX_THREADS = 64
"""Threads remembered per session, as the tracker remembers them; the one unused for longest is forgotten."""
_UNEXPLAINED = frozenset({"CD901"})
"""Codes that name no cause."""
ONE_OFFS = 5
"""Conversations of one prompt from which on such prompts are taken for usual."""
RECENT = 64
"""Requests after which a request is not reported again; of older requests only the last of each slot is remembered."""


class FindingHistory(msgspec.Struct, gc=False):
    """The last requests, those of each thread and slot, and how fast prompts are computed."""

    threads: dict[int, deque[Judged]] = msgspec.field(default_factory=dict)
    recent: deque[Request] = msgspec.field(default_factory=lambda: deque(maxlen=RECENT))
    """The last requests, in the order of their ends."""
    slots: dict[int, Request] = msgspec.field(default_factory=dict)
    """The last request of each slot."""
    speed: PromptSpeed = msgspec.field(default_factory=PromptSpeed)
    firsts: dict[int, int] = msgspec.field(default_factory=dict)
    """Tokens of the first prompt of each of these threads."""
    latest: int | None = None
    """Thread that was used last; it is the last one in ``threads``."""
    known: set[int] = msgspec.field(default_factory=set)
    """Numbers of all threads so far."""
    steals: int = 0
    settled: set[tuple[int, str]] = msgspec.field(default_factory=set)
    """Threads, and codes of the rules that decided what they had left open of them."""
    returns: bool = False
    """The RAM cache restored a conversation whose slot held another one."""
    strict: bool = False
    """The server does not choose slots by a similarity that others choose them by."""
    in_turn: bool = False
    """A conversation went on, or may have behind a longer prompt of another one in its slot."""
    files: bool = False
    """Slots were filled from files."""
    emptied: bool = False
    """By the texts, a slot that only one conversation used lost its content before the next turn; no line shows why."""
    one_offs: bool = False
    """Most conversations that never continued are single prompts."""
    weighed: dict[int, int] = msgspec.field(default_factory=dict)
    """What the last requests say, by number: tokens of conversations that came back, negative of prompts that had
    changed."""
    balance: int = 0
    """Sum of what all requests say; below 0 the client changes its prompts more than conversations come back."""
    told: tuple[bool, ...] = (False, False, False, False, False)
    """What the rules knew of ``doubts``, ``in_turn``, ``files``, ``emptied`` and ``one_offs`` when asked last."""

    @property
    def doubts(self) -> bool:
        """Whether more tokens were lost by prompts that had changed than belong to conversations that came back."""
        return self.balance < 0

    def weigh(self, index: int, tokens: int) -> list[Request]:
        """Count what a request says; returns losses of conversations that came back, if they are seen otherwise now."""
        if tokens:
            self.weighed[index] = tokens
            self.balance += tokens
            if len(self.weighed) > RECENT:
                del self.weighed[next(iter(self.weighed))]
        known = self.doubts, self.in_turn, self.files, self.emptied, self.one_offs
        if known == self.told:
            return []
        # that conversations are in turn says nothing of prompts that share no more than a frame
        least = FRAME if known[:1] + known[2:] == self.told[:1] + self.told[2:] else -1
        self.told = known
        return [
            one
            for one in self.recent
            if (self.weighed.get(one.index, 0) > 0 or "slot_purged" in one.marks)
            and one.lost_tokens
            and (one.common_prefix_tokens or 0) > least
            and _still_changes(one, index)
        ]

    def remember(self, judged: Judged) -> None:
        """Take a request; the rules have been asked about it."""
        request = judged.request
        thread = request.thread
        if request.held_thread != thread or request.restored_from_ram:
            self.returns = self.returns or _changed_slots(request)
        self.see_turn(request)
        if "slot_file" in request.marks:
            self.files = True
        if not self.emptied and was_emptied(request):
            self.emptied = _UNEXPLAINED.issuperset(judged.verdict.codes)
        if not self.strict and came_back(request):
            self.strict = request.facts.setting("cache_ram_mib") == 0
        if request.revision:
            self._replace(request)
        else:
            self.recent.append(request)
            self.slots[request.slot] = request
        if thread is not None:
            turns = self.threads[thread] if thread == self.latest else self._use(thread)
            turns.append(judged)
            if request.thread_turn == 0:
                self.firsts[thread] = request.prompt_tokens or 0
            if len(turns) > 1 and turns[-2].request.index >= request.index:
                _order(turns)
            if len(turns) <= 2:
                self.one_offs = self.longest_single() > 0

    def longest_single(self, thread: int | None = None) -> int:
        """Return the tokens of the longest single prompt of another thread; 0 unless most threads are single prompts.

        Among single prompts, a prompt can be longer than an earlier one by chance and not be its next turn.
        """
        others = [turns for number, turns in self.threads.items() if number != thread]
        single = [turns[0].request.prompt_tokens or 0 for turns in others if len(turns) == 1]
        if len(single) < ONE_OFFS:
            return 0
        several = sum(len(turns) > 1 and not any(map(_goes_on, turns)) for turns in others)
        return max(single) if len(single) > several else 0

    def see_turn(self, request: Request) -> None:
        """Learn from a request that conversations alternate, before the rules are asked about it."""
        if not self.in_turn:
            self.in_turn = self._is_in_turn(request)

    def _is_in_turn(self, request: Request) -> bool:
        """Whether a conversation continues, or may continue with a prompt shorter than the last one in its slot."""
        if request.thread_turn == 0 or request.outcome == "reused":
            return request.thread_turn > 0
        last, length = self.slots.get(request.slot), request.prompt_tokens or 0
        if last is None or last.index >= request.index:
            return False
        return 0 < length < (last.prompt_tokens or 0) and (request.reference_tokens or 0) <= length

    def _replace(self, request: Request) -> None:
        """Put a request that is judged again in the place of what it was."""
        for at, one in enumerate(self.recent):
            if one.index == request.index:
                self.recent[at] = request
        last = self.slots.get(request.slot)
        if last is not None and last.index == request.index:
            self.slots[request.slot] = request

    def _use(self, thread: int) -> deque[Judged]:
        """Put a thread last, and give its requests; of too many threads the one unused for longest is forgotten."""
        queue = self.threads.pop(thread, None)
        if queue is None:
            if len(self.threads) >= MAX_THREADS:
                gone = next(iter(self.threads))
                del self.threads[gone]
                self.firsts.pop(gone, None)
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
            if code in one.verdict.codes and _still_changes(one.request, request.index)
        ]

    def first_prompt(self, thread: int | None) -> int:
        """Tokens of the first prompt of a thread; 0 if it is not known."""
        return 0 if thread is None else self.firsts.get(thread, 0)

    def is_settled(self, thread: int | None, code: str) -> bool:
        """Whether a rule decided what it had left open of a thread."""
        return (thread, code) in self.settled

    def met(self, thread: int | None) -> int:
        """Count the threads so far, this one included."""
        if thread is not None:
            self.known.add(thread)
        return len(self.known)

    def forget(self, index: int) -> None:
        """Take the request with this number, which is seen otherwise now, out of its thread and the balance."""
        self.balance -= self.weighed.pop(index, 0)
        for queue in self.threads.values():
            if not queue or not queue[0].request.index <= index <= queue[-1].request.index:
                continue
            for judged in queue:
                if judged.request.index == index:
                    queue.remove(judged)
                    break

    def before(self, request: Request) -> tuple[list[Judged], Request | None]:
        """Give the earlier requests of its thread, oldest first, and the last one of its slot.

        Requests may be asked about when later ones are known.
        """
        number, served = request.index, self.slots.get(request.slot)
        thread = list(self.threads.get(request.thread, ())) if request.thread is not None else []
        while thread and thread[-1].request.index >= number:
            thread.pop()
        if served is not None and served.index >= number:
            earlier = (r for r in reversed(self.recent) if r.slot == request.slot and r.index < number)
            served = next(earlier, None)
        return thread, served

    def beside(self, request: Request) -> list[Request]:
        """Give what other slots served while this request was at work."""
        first, last, slot = request.first_line, request.last_line, request.slot
        found: list[Request] = []
        for r in reversed(self.recent):
            if r.last_line <= first:
                break  # those before that had ended even earlier
            if r.first_line < last and r.slot != slot:
                found.append(r)
        return found[::-1]

    def taker(self, turn: Request) -> Request | None:
        """Return the next request on the slot of an earlier request; None if it is no longer known."""
        if not self.recent or self.recent[0].index > turn.index:
            return None
        later = (r for r in self.recent if r.slot == turn.slot and r.index > turn.index)
        return min(later, key=lambda r: r.index, default=None)

    def ended_at(self, length: int, slack: int, before: int) -> bool:
        """Whether a request with a number below ``before`` left a slot at this length, or up to ``slack`` below it."""
        return any(
            r.index < before and 0 <= length - (r.seen.released_tokens or 0) <= slack
            for r in (*self.recent, *self.slots.values())
        )


def _goes_on(turn: Judged) -> bool:
    return turn.request.outcome == "reused"


def _still_changes(earlier: Request, index: int) -> bool:
    """Whether what is said of an earlier request may still change after the request with this number."""
    return 0 < index - earlier.index < RECENT


def _changed_slots(request: Request) -> bool:
    """Whether a conversation was reused though its slot had held another one."""
    held = request.held_thread
    other = request.restored_from_ram or (held is not None and held != request.thread)
    return bool(other) and request.outcome == "reused" and request.thread_turn > 0


def _order(queue: deque[Judged]) -> None:
    """Put requests in the order of their numbers, in which nearly all of them come."""
    ordered = sorted(queue, key=lambda j: j.request.index)
    queue.clear()
    queue.extend(ordered)
