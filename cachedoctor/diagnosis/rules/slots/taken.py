"""What a log shows of a conversation whose slot another one took, for the rules of the CD3xx family."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import SHORT, RuleContext
from cachedoctor.diagnosis.rules.lengths import UNSEARCHED
from cachedoctor.knowledge.decision import FRAME
from cachedoctor.model import Request, RuledOut

CHANGED_HEAD = ("CD101", "CD102", "CD108")
"""Codes of the changes of a prompt that leave the same lengths as a slot that another conversation took."""
ALTERNATE = RuledOut("prefix-diverges-early", "the prompt lengths alternate between conversations on this slot")
"""The look-alike that alternating lengths exclude."""


def other_held(s: RuleContext) -> bool:
    """The slot was taken; other rules decide whether a change of the prompt explains the loss."""
    if not s.slot_taken or s.request.seen.choice.t_last == -1 or s.is_infill:
        return False
    if s.elsewhere or s.is_doubtful or s.is_emptied or is_single(s):
        return False
    return not (_by_chance(s) or _shares_less(s) or _in_parallel(s))


def is_single(s: RuleContext) -> bool:
    """Whether it may be a single prompt, as most of this server are: nothing but its length makes it a turn."""
    return s.request.seen.choice.selected_by == "lru" and s.is_one_off


def _in_parallel(s: RuleContext) -> bool:
    """Whether another request of this conversation was at work at the same time: a slot serves one, and the others take
    what is left."""
    return s.known and any(one.thread == s.request.thread for one in s.beside(s.request))


def _shares_less(s: RuleContext) -> bool:
    """Whether the slot still holds more of this conversation's beginning than is in the prompt: it continues another one.

    Who took the slot kept what both begin with.
    """
    thief, most = s.slot_before, s.lcp_at_most
    if thief is None or most is None or thief.held_thread != s.request.thread or s.known:
        return False
    kept = thief.common_prefix_tokens if thief.held_tokens == s.request.reference_tokens else None
    return kept is not None and most < kept - FRAME


def _by_chance(s: RuleContext) -> bool:
    """Whether only its length makes it a turn of a conversation that never lost its slot before: a RAM cache that lost
    nothing should have brought that back, and any new prompt that is longer than an old one looks like that."""
    r = s.request
    if not s.setup.ram_keeps_all or r.slot_named or r.text_lcp is not None or s.known:
        return False
    if any(turn.outcome in ("partial", "reprocessed") for turn in s.history):
        return False
    # what takes a slot and keeps half of what it held does not save it; these two share less
    apart = (s.lcp or r.cached_tokens or 0) < UNSEARCHED * (r.reference_tokens or 0)
    return apart and not _unsaved(s)


def _unsaved(s: RuleContext) -> bool:
    """Whether what took the slot is known to have left no copy in the RAM cache: infill, embeddings, reranking.

    What took it from another conversation did not take it from this one.
    """
    thief = s.slot_before
    if thief is None or thief.thread_turn or thief.seen.fresh or thief.held_thread not in (None, s.request.thread):
        return False
    return thief.processed_tokens is None or ("ram_saves" in s.facts.shows and not thief.ram_saved)


def side_request(s: RuleContext) -> bool:
    """A short prompt took the slot, the first request of its own conversation: a title, a summary, tags."""
    thief = s.slot_before
    if thief is None or thief.thread == s.request.thread or thief.thread_turn:
        return False
    length = length_of(thief)
    return length is not None and length <= SHORT * (s.request.reference_tokens or 0)


def length_of(thief: Request) -> int | None:
    """Tokens of a prompt; for a task without timings and reply, such as embeddings, the tokens left in its slot."""
    return thief.prompt_tokens if thief.prompt_tokens is not None else thief.seen.released_tokens
