"""Assigns requests to conversations, and divides conversations that were wrongly joined.

A prompt of 2,100 tokens on a slot with 2,040 tokens is the next turn of the slot's conversation. If a prompt of 22,600
tokens shares 20,000 with the slot, and another conversation ended at 23,099 tokens, it is a turn of that conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from cachedoctor.engines.llamacpp.conversations import interleaved
from cachedoctor.engines.llamacpp.conversations.interleaved import (
    KEPT,
    CommonHeads,
    InterleavedTurn,
    OneShot,
)
from cachedoctor.knowledge.decision import FRAME, MIN_TURN, SIMILAR, shortest
from cachedoctor.model import Mark, Request

MAX_THREADS = 64
"""Threads remembered per session; the one unused for longest is forgotten."""
UNSEEN = 8
"""Tokens by which what was restored from the RAM cache may be shorter or longer than what it had held."""
WINDOW = 8
"""Requests of a thread that can still turn out to be another's."""
SPAN = 64
"""Requests of all threads after which one is final."""


class Taken(msgspec.Struct, frozen=True):
    """Another conversation took this one's copy out of the RAM cache, which no longer contains it."""

    prefix: int
    """Tokens at which the two diverge."""
    mark: Mark
    """The line that says that a copy was taken."""


class Thread:
    """A conversation."""

    __slots__ = (
        "changed_head", "ended", "id", "last", "prompt", "recent", "slot", "taken", "total", "turns", "unsaved",
        "went_on",
    )  # fmt: skip

    def __init__(self, id: int, total: int, prompt: int, slot: int) -> None:
        self.id = id
        self.total = total
        """Tokens of the last prompt + reply, as the slot held them."""
        self.prompt = prompt
        self.slot = slot
        self.turns = 0
        self.last = 0
        """Index of its last request."""
        self.ended = 0
        """Line of the end of its last request."""
        self.changed_head = False
        """Its last request found its own previous turn in the slot, and most of it no longer matched."""
        self.went_on = False
        """A request continued what another one had left in the slot."""
        self.recent: list[InterleavedTurn] = []
        """Its last requests."""
        self.taken: Taken | None = None
        """What became of its copy in the RAM cache since its last turn."""
        self.unsaved = False
        """Another text took its slot since its last turn, and the log shows that no copy was made of it."""


class Lengths(msgspec.Struct, frozen=True, gc=False):
    """The lengths of a request that show which conversation it continues, in tokens."""

    prompt: int | None
    cached: int | None
    prefix: int | None
    """Longest common prefix with what its slot held."""
    exact: bool
    """Whether that was printed."""
    held: int | None
    """Tokens that its slot held."""
    held_thread: int | None
    f_keep: float | None
    first_line: int
    swapped: bool
    """A prompt came back from the RAM cache for it."""
    searched: bool
    """The RAM cache, which has evicted nothing, was searched for one."""
    unseen: bool = False
    """More was reused than its slot held of it: the RAM cache restored it, in a log that hides that."""
    roomy: bool = False
    """The RAM cache is known to have kept all that left a slot, so that a turn of a conversation would have got it
    back."""
    skipped: bool = False
    """The RAM cache was not searched, although the slot was empty."""
    compared: Mapping[int, int] = {}
    """Common prefix with what other slots or the RAM cache held, by conversation, where the server printed it."""


Found = tuple[Thread | None, int]
"""The conversation that a request continues, None for a new one; and how many others its prompt could have extended."""


class Moved(msgspec.Struct):
    """A request that was assigned to the wrong conversation."""

    turn: InterleavedTurn
    thread: int
    number: int
    """Number of its turn; 0 for the first of its thread."""
    total: int
    """Tokens of the turn before it in its own thread; 0 when it is the first."""
    held_thread: int | None = None
    """Conversation whose text its slot held."""


def _left(request: Request, turn: InterleavedTurn) -> bool:
    """Whether a request kept less than half of what the turn before it had left in the slot."""
    kept = request.reference_lcp or request.common_prefix_tokens or request.cached_tokens or 0
    return kept < 0.5 * turn.total


def _compared(request: Request) -> bool:
    """Whether a slot still held text when a request came: the frame of a message is common to all prompts, but none
    has a beginning in common with a slot that was erased."""
    return "slot_erased" not in request.marks and bool(request.common_prefix_tokens or request.cached_tokens)


def _at_end(prompt: int | None, length: float) -> bool:
    """Whether so much ends just before the end of a prompt, where a server with checkpoints has its last one."""
    return prompt is not None and 0 <= prompt - length <= UNSEEN


def _ends_at_a_reply(lcp: int, exact: bool, thread: Thread) -> bool:
    """Whether a common prefix ends where an earlier reply of this conversation begins.

    Reasoning that is dropped from the history makes a prompt so much shorter that it looks like another conversation's;
    but another one parts in the first message of its user, not after it.
    """
    least, most = lcp - (3 if exact else 8), lcp + 12
    for turn in thread.recent:
        end = turn.request.prompt_tokens
        if end is not None and least <= end <= most:
            return True
    return False


def _parts_at(thread: Thread, lcp: int) -> bool:
    """Whether this conversation parts, at this length, from the one that took its copy out of the RAM cache.

    A copy that shares no more than a head comes back, too, where the own one is gone. One prompt alone may be of
    anybody who has that head.
    """
    return thread.taken is not None and thread.turns > 1 and abs(thread.taken.prefix - lcp) <= UNSEEN


def keeps_all(request: Request) -> bool:
    """Whether a prompt kept all of its slot's content, or of another slot's; turns of other conversations do not."""
    if request.reference_lcp is not None and request.reference_lcp == request.reference_tokens:
        return True
    held, lcp = request.held_tokens, request.common_prefix_tokens
    return bool(held) and lcp is not None and lcp >= (held or 0) - KEPT


def lengths_of(request: Request) -> Lengths:
    """The lengths of a request that has ended."""
    return Lengths(
        request.prompt_tokens, request.cached_tokens, request.common_prefix_tokens, request.lcp_exact,
        request.held_tokens, request.held_thread, request.f_keep, request.first_line,
        request.restored_from_ram is True, request.seen.choice.looked,
    )  # fmt: skip


class Conversations:
    """The conversations of one session."""

    def __init__(self) -> None:
        self._threads: dict[int | None, Thread] = {}
        self.get = self._threads.get
        """Return the thread with this number, if it is still remembered."""
        self._next = 0
        self._heads = CommonHeads()
        self._side_requests = False
        """It is proven that longer prompts without a common prefix were other conversations here."""

    def take_copy(self, id: int, prefix: int, mark: Mark) -> None:
        """Note that another conversation, with a common prefix of ``prefix`` tokens, took this one's RAM copy."""
        thread = self._threads.get(id)
        if thread is not None and prefix < thread.total - KEPT:
            thread.taken = Taken(prefix, mark)

    def lose_copy(self, id: int) -> None:
        """Note that another text took this conversation's slot without a copy of it."""
        thread = self._threads.get(id)
        if thread is not None:
            thread.unsaved = True

    def began(self, id: int | None) -> bool:
        """Whether the only known turn of this conversation is the first request of its slot that is in the log."""
        thread = self.get(id)
        return thread is not None and thread.turns == 1 and thread.recent[0].request.seen.fresh

    def by_total(self, total: float, slack: float, before: int) -> Thread | None:
        """Return the newest thread that ended near ``total`` tokens before line ``before``."""
        near = [t for t in self._threads.values() if abs(t.total - total) <= slack and t.ended < before]
        return max(near, key=lambda t: t.last, default=None)

    def by_turn(self, total: float, slack: float, before: int) -> Thread | None:
        """Return the thread that has a recent turn which ended near ``total`` tokens before line ``before``."""
        turns = (
            (turn.request.index, thread)
            for thread in self._threads.values()
            for turn in thread.recent
            if abs(turn.total - total) <= slack and turn.request.last_line < before
        )
        return max(turns, key=lambda found: found[0], default=(0, None))[1]

    def by_reuse(self, cached: int, before: int) -> Thread | None:
        """Return the newest thread that could reuse ``cached`` tokens: all, or up to the end of its last prompt."""
        found = self.by_total(cached, UNSEEN, before)
        if found is not None:
            return found
        near = [t for t in self._threads.values() if _at_end(t.prompt, cached) and t.ended < before]
        return max(near, key=lambda t: t.last, default=None)

    def came_back(self, cached: int, before: int) -> list[Moved]:
        """Divide a conversation if its earlier turn came back from the RAM cache and the log hides this.

        All that this turn left in its slot was reused, and no known conversation ended there: the turns after it belong
        to another conversation. Returns the requests of these turns.
        """
        if self.by_reuse(cached, before) is not None:
            return []
        return self.split(cached, UNSEEN, before, reused=True)[1]

    def stayed(self, thread: Thread, length: int, slot: int, before: int) -> list[Moved]:
        """Divide a conversation whose turn of ``length`` tokens stayed in its slot and is continued there now.

        The later turns, which began in other slots without any of its text, belong to another conversation. Returns
        these.
        """
        ends = [
            at
            for at, (turn, following) in enumerate(pairwise(thread.recent), 1)
            if turn.total == length
            and turn.request.slot == slot
            and _left(following.request, turn)
            and all(later.request.slot != slot and later.request.last_line < before for later in thread.recent[at:])
        ]
        if not ends:
            return []
        return self._divide(thread, thread.recent, [thread.recent[: ends[-1]], thread.recent[ends[-1] :]])

    def split(
        self, total: float, slack: float, before: int, *, reused: bool = False, file: bool = False
    ) -> tuple[Thread | None, list[Moved]]:
        """Divide two conversations that were joined: the RAM cache restored the content of an earlier turn.

        ``reused``: ``total`` is the number of reused tokens, which may end at a checkpoint before the reply.
        ``file``: a file restored the content, and no server searches files: the slot may have been erased in between.
        Returns the thread that ended near ``total`` tokens before line ``before``, and the requests that were joined to
        it as its next turns.
        """
        near = [
            (turn.request.index, thread, at)
            for thread in self._threads.values()
            for at, (turn, following) in enumerate(pairwise(thread.recent), 1)
            if (abs(turn.total - total) <= slack or (reused and _at_end(turn.request.prompt_tokens, total)))
            and turn.request.last_line < before
            and _left(following.request, turn)
            and (not file or _compared(following.request))
        ]
        if not near:
            return None, []
        self._side_requests = True
        _, thread, at = max(near, key=lambda found: found[0])
        mine, others = thread.recent[:at], thread.recent[at:]
        divided = self._divide(thread, thread.recent, [mine, others])
        return thread, [moved for moved in divided if moved.turn.request.last_line < before]

    def goes_on(self, id: int | None, length: int | None, prefix: int | None, cached: int | None) -> Thread | None:
        """Return the conversation whose text a slot contained, ``length`` tokens, if a prompt kept nearly all of it."""
        if id is None or not length:
            return None
        least, reused = length - (length // 4 if length < 4 * KEPT else KEPT), cached or 0
        kept = least and ((prefix or 0) >= least or least <= reused <= length + 8)
        return self._threads.get(id) if kept else None

    def join(self, request: Lengths, elsewhere: Iterable[int | None] = ()) -> Found:
        """Find the conversation that the request continues.

        ``elsewhere``: conversations whose text is in another slot; a request that continues one would use that slot.
        """
        prompt, cached, lcp, length = request.prompt, request.cached or 0, request.prefix, request.held
        held = None if request.held_thread is None else self._threads.get(request.held_thread)
        if prompt is None:
            return held if (request.f_keep or 0) >= 0.5 else None, 0
        back = self.by_reuse(cached, request.first_line) if request.unseen else None
        if back is not None:
            return back, 0  # the prefix is that of the copy which came back, not of what the slot held
        if request.unseen and self.goes_on(request.held_thread, length, lcp, cached) is not None:
            return held, 0
        if cached > KEPT and (held is None or cached > held.total):
            found = self.by_reuse(cached, request.first_line)
            if found is not None:
                return found, 0
        if self._diverges(request, held) and self._heads.separate(lcp or 0):
            return None, 0 if request.roomy or request.searched else len(self._able(request, prompt))
        return self._among(request, prompt, held, elsewhere)

    def _among(self, request: Lengths, prompt: int, held: Thread | None, elsewhere: Iterable[int | None]) -> Found:
        """Choose among the conversations that a prompt of this length can extend."""
        lcp, length = request.prefix, request.held
        able = self._able(request, prompt)
        taken = set(elsewhere) if able else set()
        others = [t for t in able if t is not held and t.id not in taken]
        if held is not None and lcp is not None and _ends_at_a_reply(lcp, request.exact, held):
            return held, len(others)
        if held is not None and lcp is not None and length and lcp >= length * 0.5:
            # Another conversation with the same head took the slot, if this prompt can extend one that goes further.
            further = [t for t in others if t.total > lcp + KEPT and (not request.swapped or _parts_at(t, lcp))]
            return max(further, key=lambda t: t.total) if further else held, len(others)
        alike = [t for t in able if FRAME < request.compared.get(t.id, 0) < SIMILAR * prompt]
        if len(alike) == 1 and not request.swapped and max(lcp or 0, request.cached or 0) <= FRAME:
            return alike[0], 0  # more than a template writes is the same, and too little of it to be reused
        if self._side_requests and (lcp or 0) < 0.1 * prompt and request.searched:
            return None, len(others)  # neither slot nor RAM cache had its beginning
        if held in able and held is not None and (not others or held.changed_head):
            return held, len(others)
        if others:
            return max(others, key=lambda t: t.total), len(others)
        longer = length is not None and prompt >= length
        same = lcp is not None and (lcp >= max(prompt - KEPT, prompt * 0.5) or (longer and lcp >= 0.1 * prompt))
        # else shorter, with little in common: a new conversation, perhaps with the same head; or one that lost its slot
        again = 0 if same else sum(1 for t in self._threads.values() if t.unsaved and t.prompt == prompt)
        return held if same else None, len(others) + again

    def _able(self, request: Lengths, prompt: int) -> list[Thread]:
        """Give the conversations that a prompt of this length can extend."""
        floor, most = shortest(prompt), prompt - MIN_TURN
        # One request alone is easily followed by a somewhat longer one that has nothing to do with it.
        return [
            t
            for t in self._threads.values()
            if (
                (floor <= t.total <= prompt and (t.total <= most or t.turns > 1))
                or (request.skipped and t.prompt == prompt)
            )
            and t.ended < request.first_line
        ]

    def record(self, request: Request, thread: Thread, total: int) -> None:
        """Note the end of a request of ``thread``, whose slot now contains ``total`` tokens."""
        threads, before, prompt = self._threads, thread.total, request.prompt_tokens
        threads[thread.id] = threads.pop(thread.id, thread)  # the one used last stands last
        thread.changed_head = thread.unsaved = False
        if thread.turns:
            kept = request.common_prefix_tokens or request.cached_tokens or 0
            if kept >= before - KEPT:
                thread.went_on = True
            if kept < 0.5 * before:
                thread.changed_head = request.held_thread == thread.id
            thread.taken = None
        thread.total, thread.prompt, thread.slot = total, prompt or total, request.slot
        thread.turns += 1
        thread.ended, thread.last, recent = request.last_line, request.index, thread.recent
        if len(recent) >= WINDOW:
            del recent[0]
        recent.append(InterleavedTurn(request, total))

    def divide(self, thread: Thread, *, roomy: bool) -> tuple[list[Moved], int]:
        """Divide conversations that were taken for ``thread``, if its last requests leave no other reading.

        ``roomy``: the RAM cache is known to have kept all that left a slot.
        Returns the turns that were another's; and, where there are two readings, how many more conversations the last
        request could have extended.
        """
        last = thread.recent[-1].request
        if keeps_all(last):
            return [], 0
        apart = self._one_shot(last, thread.total, roomy=roomy)
        if apart:
            return apart, 0
        if not self._contested(last, thread.id):
            return [], 0
        turns = thread.recent
        if last.index - turns[0].request.index >= SPAN:
            turns = [t for t in turns if last.index - t.request.index < SPAN]
        before = len(turns) - 2
        while before > 0 and not self._contested(turns[before].request, thread.id):
            before -= 1
        if before <= 0 or interleaved.part_apart(turns[before - 1 : before + 1], turns[-2:]):
            return [], 0
        for start in range(before):
            reading = interleaved.read(turns[start:])
            if reading is not None:
                if reading.holds:
                    return self._divide(thread, turns[start:], reading.parties), 0
                return [], reading.returns
        return [], 0

    @staticmethod
    def _diverges(request: Lengths, held: Thread | None) -> bool:
        """Whether a request kept a part of what the slot held, and that had never gone on: no turns are known of it."""
        lcp, length = request.prefix, request.held
        if held is None or held.went_on or lcp is None or not length or (not lcp and request.exact):
            return False
        return lcp < length - KEPT and lcp < (request.prompt or 0) - KEPT

    def _one_shot(self, last: Request, total: int, *, roomy: bool) -> list[Moved]:
        """Give every prompt a thread of its own that turns out to be no turn of a conversation.

        ``roomy``: the RAM cache has kept all that left a slot, so that a turn of a conversation would have got it back.
        """
        first, held = last.held_tokens in (0, None) and not last.cached_tokens, self.get(last.held_thread)
        if not first and (held is None or held.went_on):
            return []
        lengths = lengths_of(last)
        if roomy and last.seen.choice.selected_by == "lru" and lengths.prefix is None:
            lengths = replace(lengths, prefix=last.cached_tokens)  # nothing else is known of its beginning
        if last.prompt_tokens is None or not (first or self._diverges(lengths, held)):
            return []
        head = None if first else lengths.prefix
        found = {
            other.index for other in self._heads.note(OneShot(last.index, head, last.prompt_tokens, total), roomy=roomy)
        }
        moved: list[Moved] = []
        for thread in list(self._threads.values()) if found else []:
            cuts = [at for at, turn in enumerate(thread.recent) if at and turn.request.index in found]
            if cuts and last.index - thread.recent[cuts[0]].request.index < SPAN:
                ends = [0, *cuts, len(thread.recent)]
                moved += self._divide(thread, thread.recent, [thread.recent[a:b] for a, b in pairwise(ends)])
        return moved

    def _divide(
        self, thread: Thread, turns: list[InterleavedTurn], parties: list[list[InterleavedTurn]]
    ) -> list[Moved]:
        """Give every party a thread of its own; the first keeps ``thread``."""
        owners: dict[int, Moved] = {}
        earlier = thread.turns - len(turns)
        for number, party in enumerate(parties):
            owner = self.open(party[0].request.slot) if number else thread
            end = party[-1]
            owner.recent, owner.turns = party, len(party) + (0 if number else earlier)
            owner.total, owner.prompt = end.total, end.request.prompt_tokens or end.total
            owner.last, owner.ended, owner.slot = end.request.index, end.request.last_line, end.request.slot
            owner.changed_head = False
            for at, turn in enumerate(party):
                turn_number = at + (0 if number else earlier)
                owners[turn.request.index] = Moved(turn, owner.id, turn_number, party[at - 1].total if at else 0)
        order = [owners[turn.request.index] for turn in turns]
        for before, moved in pairwise(order):
            moved.held_thread = before.thread
        return [m for m in order[1:] if m.thread != thread.id or m.held_thread != thread.id]

    @staticmethod
    def take_back(moved: Moved, again: Request) -> None:
        """Store a request with its new verdict."""
        moved.turn.request = again

    @staticmethod
    def replace_last(request: Request, thread: Thread) -> Request:
        """Store the last request of ``thread`` as it is now."""
        thread.recent[-1].request = request
        return request

    @staticmethod
    def _contested(request: Request, thread: int) -> bool:
        """Whether the slot held what is taken for this conversation, and the prompt kept half of it or more, not all.

        With less in common, the server saves to RAM what the slot held, and a session would get it back.
        """
        lcp, held = request.common_prefix_tokens, request.held_tokens
        return (
            request.held_thread == thread
            and lcp is not None
            and held is not None
            and held <= 2 * lcp < 2 * (held - KEPT)
        )

    def open(self, slot: int) -> Thread:
        """Begin a thread; if there are too many, the one unused for longest is forgotten."""
        if len(self._threads) >= MAX_THREADS:
            del self._threads[next(iter(self._threads))]
        thread = Thread(self._next, 0, 0, slot)
        self._next += 1
        self._threads[thread.id] = thread
        return thread
