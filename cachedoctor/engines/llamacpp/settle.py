"""From what was printed of a request to the request: counts, common prefix, conversation, loss, in this order.

``settle`` reads what the log printed (``Observed``) and what is known of the server (``Facts``); what earlier requests
left behind is ``Past``, which learns from each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from cachedoctor.engines.llamacpp import accounting
from cachedoctor.engines.llamacpp import accounting as intervals
from cachedoctor.engines.llamacpp import accounting as losses
from cachedoctor.engines.llamacpp.accounting import NEAR, Counts, Held, Prefix
from cachedoctor.engines.llamacpp.conversations.interleaved import KEPT
from cachedoctor.engines.llamacpp.conversations.join import SPAN, Conversations, Lengths, Moved, Thread
from cachedoctor.engines.llamacpp.ram_cache import RamCache
from cachedoctor.engines.llamacpp.slot import IdleSave, Slot
from cachedoctor.model import Between, Facts, Mark, MarkName, Request
from cachedoctor.model.log_lines import LogFile
from cachedoctor.model.observed import Choice, Known, Observed

Marks = Mapping[MarkName, Mark]

_CLOSE = 2
"""Tokens by which a length may differ from what rounded shares make of it."""
MAX_LENGTHS = 256
"""Lengths that slots had after a request, to know one that comes back from a file."""
SAVED_BELOW = 0.5
"""Share of the slot's content that a prompt keeps, from which on the server neither saves it to RAM nor looks there."""
LRU_MOST = 0.5
"""Share of a prompt that a slot chosen for its age holds at most: the threshold of similarity is 0.1 unless it was set
higher."""
_MAX_CLEARED = 64
"""Conversations remembered whose slot was cleared or erased, or whose state was refused; as many as threads."""


class Past(msgspec.Struct):
    """What earlier requests of one life of the server left behind."""

    conversations: Conversations = msgspec.field(default_factory=Conversations)
    ram: RamCache = msgspec.field(default_factory=RamCache)
    lengths: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_LENGTHS))
    erased: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Conversation whose slot was erased over the API -> the line that says that it was emptied."""
    idle_cleared: dict[int, tuple[Mark, IdleSave]] = msgspec.field(default_factory=dict)
    """Conversation whose idle slot was cleared -> the line that says so, and the copy in the RAM cache."""
    refused: dict[int | None, Mark] = msgspec.field(default_factory=dict)
    """Conversation whose last state was too large for the RAM cache -> the line that says so."""
    slept: Mark | None = None
    """When the server last fell asleep."""
    woken: bool = False
    """It has, and no request has ended since."""
    short: int = 0
    """Checkpoints by which a list was too short to keep every one that was missed."""
    asked: Facts | None = None
    roomy: bool = False
    """Whether the RAM cache is known to have kept all, by the facts that were asked last: they rarely change."""

    def known(self, length: int, first_line: int) -> Known | None:
        """The conversation that left a slot at this length before line ``first_line``; None if no request did."""
        if length not in self.lengths:
            return None
        owner = self.conversations.by_total(length, 0, first_line)
        return Known(None if owner is None else owner.id)

    def is_roomy(self, facts: Facts) -> bool:
        """Whether the RAM cache is known to have kept all that left a slot."""
        if self.asked is not facts:
            self.asked, self.roomy = facts, _roomy(facts)
        return self.roomy

    def sleep(self, mark: Mark | None) -> None:
        """Forget what the server loses with its memory; ``mark`` is None where there was nothing to lose."""
        self.ram.forget()
        if mark is not None:
            self.slept, self.woken = mark, True

    def clear_idle(self, thread: int, mark: Mark, saved: IdleSave) -> None:
        """Note whose text an idle slot held when it was cleared."""
        if len(self.idle_cleared) >= _MAX_CLEARED:
            del self.idle_cleared[next(iter(self.idle_cleared))]
        self.idle_cleared[thread] = (mark, saved)

    def erase(self, thread: int, mark: Mark) -> None:
        """Note whose text a slot held when it was erased over the API."""
        if len(self.erased) >= _MAX_CLEARED:
            del self.erased[next(iter(self.erased))]
        self.erased[thread] = mark

    def refuse(self, thread: int, mark: Mark) -> None:
        """Note whose state the RAM cache did not take."""
        if len(self.refused) >= _MAX_CLEARED:
            del self.refused[next(iter(self.refused))]
        self.refused[thread] = mark


class Settled(msgspec.Struct, gc=False):
    """A request, and the earlier ones of which it showed that they belong to other conversations than was thought."""

    request: Request
    revised: list[Request]


def settle(
    seen: Observed, facts: Facts, past: Past, file: LogFile, slot: Slot, slots: Mapping[int, Slot], *, shown: bool
) -> Settled:
    """Settle a request that has ended.

    Args:
        seen: what was printed of it.
        facts: what is known of the server at its end.
        past: what earlier requests left.
        file: in which it begins.
        slot: that processed it; what it holds now is told by the caller.
        slots: all of the server.
        shown: lines about checkpoints would be in this log.
    """
    talk, choice = past.conversations, seen.choice
    revised: list[Request] = []
    shifted = seen.shifted or (seen.truncated and not _full(seen, facts))
    numbers, held = accounting.counts(seen, shifted=shifted), accounting.held_content(seen)
    swapped, held_before = choice.found_keep is not None, None
    found: Marks = seen.marks
    if seen.fresh or seen.n_past is not None:
        held, held_before, found = _printed_content(seen, held, numbers)
    other = None
    if choice.selected_by == "lcp" and not (swapped or seen.n_past is not None or seen.reused_chunks):
        other = _other_content(held, numbers.prompt, file="slot_files" in facts.shows)
    if other is not None:
        held, found, moved = _fill(seen, held, other, past, found)
        revised = judge_again(moved, seen.index, talk, slots)
    if swapped and seen.shows_ram:
        held, moved = _swap(seen, held, numbers.prompt, past)
        revised = judge_again(moved, seen.index, talk, slots)
    prefix = accounting.prefix(seen, held, numbers, facts, shown=shown)
    between: Mapping[str, Between] = {}
    if held.tokens is None or numbers.prompt is None:
        held, between = _completed(seen, held, numbers, prefix)
    roomy = past.is_roomy(facts) and _searches(choice)
    unseen = not swapped and _came_unseen(seen, held, numbers)
    if unseen:
        revised += judge_again(talk.came_back(numbers.cached or 0, seen.first_line), seen.index, talk, slots)
    elsewhere = (other.thread for other in slots.values() if other is not slot and other.length)
    lengths = Lengths(
        numbers.prompt, numbers.cached, prefix.tokens, prefix.exact, held.tokens, held.thread, held.f_keep,
        seen.first_line, swapped, choice.looked and facts.ram_kept_all(), unseen, roomy,
    )  # fmt: skip
    thread, others = talk.join(lengths, elsewhere) if seen.parent is None else (None, 0)
    if thread is None and not swapped and not facts.starts_cold and talk.began(held.thread):
        held = replace(held, thread=None)  # it may be this one's, of which earlier turns are missing
    # Content of unknown origin may have been this conversation's: a log cut at its start shows no first request.
    cold = thread is None and numbers.prompt is not None and (held.tokens == 0 or held.thread is not None)
    turn, reference = (0, held.tokens) if thread is None else (thread.turns, thread.total)
    if other is not None and thread is not None and thread.id == held.thread:
        reference = held.tokens  # a file takes a conversation back to the turn at which it was saved
    outcome, lost, client, server = accounting.judge(
        seen.error, seen.cancelled, numbers.prompt, numbers.cached, prefix.tokens, reference, cold=cold
    )
    cut = outcome == "unknown" and seen.parent is None
    if cut:
        outcome, lost, client, server = accounting.judge_cut(numbers.cached, prefix, reference)
    refused, reference_lcp = False, None
    if thread is not None and held.thread != thread.id:
        refused, reference_lcp, found = _own_copy(seen, thread.total, past.ram, found)
    found = _since_then(seen, thread, past, found)
    if swapped and held.thread is not None and (thread is None or thread.id != held.thread) and "ram" in found:
        talk.take_copy(held.thread, prefix.tokens or numbers.cached or 0, found["ram"])
    same = (prefix.exact or (thread is not None and thread.id == held.thread)) and not swapped and other is None
    recorded = _is_turn(seen, numbers, shifted=shifted)
    if recorded and thread is None:
        thread = talk.open(seen.slot)
    request = Request(
        seen.index, facts.index, file.path, seen.slot, seen.task, seen.first_line, seen.last_line, seen, facts, found,
        file.before, seen.parent, thread.id if recorded and thread is not None else None,
        numbers.prompt, numbers.cached, numbers.processed, seen.generated_tokens, numbers.derived, seen.prompt_ms,
        held.similarity, held.f_keep, prefix.tokens, prefix.exact, prefix.between,
        swapped if seen.shows_ram else None, lost, client, server, reference, held.tokens, held.thread, held_before,
        turn, others, outcome, seen.partial, shifted, shown, None, refused, reference_lcp, between=between,
    )  # fmt: skip
    if slot.dropped:
        request = _dropped(request, slot, past, same=same and "slot_file" not in found)
    if facts.memory == "swa":  # a recurrent checkpoint stands for one position: it cannot be half right
        slot.processed(losses.stretch(request))
    if recorded and thread is not None:
        request, later = _recorded(request, thread, talk, slots, roomy=roomy)
        revised += later
    return Settled(request, revised)


def _completed(seen: Observed, held: Held, numbers: Counts, prefix: Prefix) -> tuple[Held, Mapping[str, Between]]:
    """What the slot held, and bounds of lengths that no line prints."""
    found: dict[str, Between] = {}
    shared: Between | None = prefix.between or (None if prefix.least is None else (prefix.least, None))
    if numbers.prompt is None:
        length = intervals.prompt(seen, shared, held.similarity, numbers.cached)
        if length is not None and length[0] > 0:
            found["prompt_tokens"] = length
    if held.tokens is not None:
        return held, found
    span = intervals.held_between(seen, shared, held.f_keep)
    if span is None:
        return held, found
    low, high = span
    if high is None and low - (numbers.cached or 0) <= NEAR:
        return held, found  # no more than was reused: how much else there was is unknown
    found["held_tokens"] = span
    numbers.derived["held_tokens"] = "at least the end of its checkpoints" if high is None else "common prefix / f_keep"
    return replace(held, tokens=low if high is None else (low + high + 1) // 2), found


def _recorded(
    request: Request, thread: Thread, talk: Conversations, slots: Mapping[int, Slot], *, roomy: bool
) -> tuple[Request, list[Request]]:
    """Note a turn of a conversation; returns it, and the earlier requests that it shows to be another's."""
    talk.record(request, thread, request.seen.released_tokens or 0)
    moved, more = talk.divide(thread, roomy=roomy)
    if more:
        request = talk.replace(replace(request, other_candidates=request.other_candidates + more), thread)
    if not moved:
        return request, []
    revised = judge_again(moved, request.index, talk, slots)
    return next((m.turn.request for m in moved if m.turn.request.index == request.index), request), revised


def _roomy(facts: Facts) -> bool:
    """Whether the RAM cache is known to have kept all: builds from b8929 on warn where it is off, and what it refuses
    or throws out is printed at every level."""
    if not facts.starts_cold or facts.at_least(8929) is not True or facts.setting("cache_idle_slots") is False:
        return False
    return facts.setting("cache_ram_mib") != 0 and facts.ram_kept_all()


def _searches(choice: Choice) -> bool:
    """Whether the server looks into its RAM cache for this prompt: not where half of what the slot holds is kept.

    What is thrown away then is not saved either (b6751 and newer).
    """
    return choice.selected_by == "lru" or (choice.selected_by == "lcp" and (choice.f_keep or 0.0) < SAVED_BELOW)


def _full(seen: Observed, facts: Facts) -> bool:
    """Whether "truncated" is only said of a reply that stopped at a full context: nothing is lost by that."""
    return (seen.released_tokens or 0) + 1 >= (facts.n_ctx_slot or (seen.released_tokens or 0) + 2)


def _is_turn(seen: Observed, numbers: Counts, *, shifted: bool) -> bool:
    """Whether what the slot holds now is a turn of a conversation: not of a child, not of what was refused."""
    if seen.released_tokens is None or seen.error is not None or seen.parent is not None:
        return False
    return numbers.prompt is not None or seen.cancelled or shifted


# ---- what the slot held


def _printed_content(seen: Observed, held: Held, numbers: Counts) -> tuple[Held, int | None, Marks]:
    """What the slot held where a file may have changed it: by what is printed, compared with what it was left with.

    Returns it with the conversation whose text was replaced, and the marks.
    """
    marks, before, choice = seen.marks, None, seen.choice
    if seen.fresh and seen.held_tokens == 0 and choice.selected_by == "lcp" and choice.found_keep is None:
        # chosen by its content although it never served a request since the start: that content came from a file
        held, marks = replace(held, tokens=None), {**marks, "slot_file": marks["select"]}
    if seen.n_past is not None:
        if held.tokens not in (None, 0, seen.n_cache) and choice.found_keep is None and seen.known_length is not None:
            marks, before = {**marks, "slot_file": marks["n_past"]}, held.thread
            held = replace(held, thread=seen.known_length.thread)
        held = replace(held, tokens=seen.n_cache, prefix=seen.n_past)
    if "slot_file" in marks and held.tokens is None and numbers.prompt and held.similarity and held.f_keep:
        held = replace(held, tokens=round(held.similarity * numbers.prompt / held.f_keep))
        numbers.derived["held_tokens"] = "similarity and f_keep"
    return held, before, marks


def _swap(seen: Observed, held: Held, prompt: int | None, past: Past) -> tuple[Held, list[Moved]]:
    """A better prompt came from RAM and left it: find whose it was, now that the prompt's length is known.

    Returns what the slot held then, and the requests that were judged as turns of that conversation and belong to
    another.
    """
    keep, similarity = held.f_keep, held.similarity
    if not keep or not similarity or not prompt:
        return held, []
    total = held.tokens or similarity * prompt / keep
    slack = 1 if held.tokens else 2 + 0.001 * prompt / keep
    thread, moved = _owner(total, slack, seen, past, file=False)
    past.ram.forget(None if thread is None else thread.total)  # which one is gone may be unknown
    if thread is not None:
        held = replace(held, thread=thread.id, tokens=thread.total)
    return held, moved


def _other_content(held: Held, prompt: int | None, *, file: bool) -> tuple[int, int] | None:
    """Bounds of what the slot held by the shares of its choice, where its last request cannot have left that there.

    ``file``: the server has read slot files; a slot of unknown content holds one.
    """
    if (held.tokens is None and not file) or held.f_keep is None:
        return None
    shared = intervals.of_prompt(prompt, held.similarity) if held.prefix is None else (held.prefix, held.prefix)
    span = None if shared is None else intervals.of_share(shared, held.f_keep)
    if span is None or span[1] is None:
        return None
    own = held.tokens is not None and span[0] - _CLOSE <= held.tokens <= span[1] + _CLOSE
    return None if own else (span[0], span[1])


def _fill(
    seen: Observed, held: Held, span: tuple[int, int], past: Past, marks: Marks
) -> tuple[Held, Marks, list[Moved]]:
    """A slot holds what its last request did not leave there, and no line says where that is from.

    It is from a file; or the slot was not emptied, as it was thought to be. Returns what it held, the marks, and the
    requests that were judged as turns of that conversation and belong to another.
    """
    middle, slack = sum(span) / 2, (span[1] - span[0]) / 2 + 1
    file = held.tokens != 0
    thread, moved = _owner(middle, slack, seen, past, file=file)
    if thread is None and held.tokens and span[0] - NEAR <= held.tokens <= span[1] + NEAR:
        return held, marks, []  # so near that its own length may have been mistaken
    if held.tokens and any(abs(length - middle) <= slack for length in past.lengths):
        marks = {**marks, "slot_file": marks["select"]}
    if thread is not None:
        return replace(held, tokens=thread.total, thread=thread.id), marks, moved
    earlier = past.conversations.by_turn(middle, slack, seen.first_line) if file else None
    return replace(held, tokens=None, thread=None if earlier is None else earlier.id), marks, moved


def _owner(total: float, slack: float, seen: Observed, past: Past, *, file: bool) -> tuple[Thread | None, list[Moved]]:
    """The conversation that left so many tokens, and the requests that were judged as its next turns until now."""
    thread = past.conversations.by_total(total, slack, seen.first_line)
    return (thread, []) if thread is not None else past.conversations.split(total, slack, seen.first_line, file=file)


def _came_unseen(seen: Observed, held: Held, numbers: Counts) -> bool:
    """Whether more was reused than the slot held of the prompt, in a log that hides what the RAM cache gives back."""
    cached, prompt, choice = numbers.cached, numbers.prompt, seen.choice
    if cached is None or prompt is None or cached <= KEPT or seen.shows_ram or seen.reused_chunks:
        return False
    if held.tokens is not None and cached > held.tokens + NEAR:
        return True
    if held.similarity is not None:
        return cached > (held.similarity + 0.001) * prompt + NEAR
    return choice.selected_by == "lru" and cached > LRU_MOST * prompt


def _own_copy(seen: Observed, reference: int, ram: RamCache, marks: Marks) -> tuple[bool, int | None, Marks]:
    """What the RAM cache made of the conversation's own previous prompt, whose length is ``reference``.

    Returns whether it was refused, its common prefix, and the marks.
    """
    choice = seen.choice
    lcps = {lcp for length, lcp in choice.candidates if length == reference}
    lcp = lcps.pop() if len(lcps) == 1 else None
    looked = choice.looked and seen.shows_ram and choice.found_keep is None and "ram_failed" not in marks
    saved = ram.held(reference, seen.first_line)
    refused = looked and (lcp is not None or saved is not None)
    return refused, lcp, {**marks, "ram_copy": saved} if refused and saved is not None else marks


# ---- what was lost before it came


def _since_then(seen: Observed, thread: Thread | None, past: Past, marks: Marks) -> Marks:
    """Marks of what happened since the last turn of the conversation: the server slept, its idle slot was cleared, its
    state was too large for the RAM cache."""
    if seen.released_tokens:
        past.lengths.append(seen.released_tokens)
    if seen.stale is not None:
        marks = {**marks, "stale": seen.stale[0]}
    slept = past.slept
    if slept is not None and (past.woken if thread is None else thread.ended < slept.line):
        marks = {**marks, "slept": slept}
    past.woken = False
    if thread is not None and thread.taken is not None:
        marks = {**marks, "ram_taken": thread.taken.mark}
    too_large = None if thread is None else past.refused.get(thread.id)
    if too_large is not None and too_large.line < seen.marks["start"].line:
        marks = {**marks, "too_large": too_large}
    erased = None if thread is None else past.erased.pop(thread.id, None)
    if erased is not None:
        marks = {**marks, "slot_erased": erased}
    if thread is not None and past.idle_cleared:
        found = past.idle_cleared.pop(thread.id, None)
        if found is not None and seen.choice.found_keep is None:
            cleared, saved = found
            if saved.gone_at is not None and seen.evictions >= saved.gone_at:
                marks = {**marks, "idle_cleared": cleared, "idle_saved": saved.mark}
    return marks


def _dropped(request: Request, slot: Slot, past: Past, *, same: bool) -> Request:
    """Find the dropped checkpoint that would have helped, and forget those of text that is gone.

    ``same``: the slot held this conversation. Where another's text was held a swap from RAM may be hidden, unless the
    prefix is printed.
    """
    missed = losses.missed(request, slot.dropped) if same else None
    if missed is not None and missed.tokens - (request.cached_tokens or 0) > NEAR:
        past.short = max(past.short, missed.behind)
    start, kept = request.marks["start"].line, (request.common_prefix_tokens or 0) if same else 0
    slot.keep([d for d in slot.dropped if d.line > start or d.tokens <= kept])
    return request if missed is None else replace(request, dropped=missed)


# ---- requests that belong to other conversations


def follow(
    request: Request,
    thread: int,
    turn: int,
    held_thread: int | None,
    total: int | None,
    kept: int | None,
    together: int = 0,
) -> Request:
    """Judge a request as the turn of a conversation that it is by its text, given beside the log.

    Args:
        request: as its lengths had it.
        thread: the conversation.
        turn: 0 for its first.
        held_thread: conversation whose text its slot held; None where that is unknown.
        total: tokens of the turn before and its reply in its slot; None where that is unknown.
        kept: of these, the ones that the text kept; None where that is unknown.
        together: tokens of its beginning that another request computed at the same time.
    """
    reference = request.held_tokens if not turn else total
    outcome, lost, client, server = accounting.judge(
        request.seen.error, request.seen.cancelled, request.prompt_tokens, request.cached_tokens,
            request.common_prefix_tokens,
        reference, cold=not turn and request.prompt_tokens is not None,
    )  # fmt: skip
    return replace(
        request, thread=thread, thread_turn=turn, held_thread=held_thread, other_candidates=0, outcome=outcome,
        lost_tokens=lost, lost_client=client, lost_server=server, reference_tokens=reference, text_lcp=kept,
        together_tokens=together,
    )  # fmt: skip


def judge_again(moved: list[Moved], current: int, talk: Conversations, slots: Mapping[int, Slot]) -> list[Request]:
    """Judge requests again, as turns of the conversation that they really belong to; returns those that may change.

    The report keeps what it said of those that are final: it can no longer be taken back. ``current``: number of the
    request that showed it.
    """
    revised = []
    for move in moved:
        before = move.turn.request
        slot = slots.get(before.slot)
        if slot is not None and slot.thread == before.thread and slot.length == before.seen.released_tokens:
            slot.belongs_to(move.thread)
        reference = move.total or before.held_tokens
        outcome, lost, client, server = accounting.judge(
            before.seen.error, before.seen.cancelled, before.prompt_tokens, before.cached_tokens,
            before.common_prefix_tokens,
            reference, cold=not move.total,
        )  # fmt: skip
        again = replace(
            before, thread=move.thread, thread_turn=move.number, held_thread=move.held_thread, outcome=outcome,
            lost_tokens=lost, lost_client=client, lost_server=server, reference_tokens=reference,
            revision=before.revision + (before.index != current),
        )  # fmt: skip
        talk.take_back(move, again)
        if before.index != current and current - before.index < SPAN:
            revised.append(again)
    return revised
