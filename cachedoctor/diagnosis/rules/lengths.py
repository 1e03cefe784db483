"""What prompt lengths show: about the RAM prompt cache, alternating conversations and separate prompts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cachedoctor.diagnosis.rules import kit

UNSEARCHED = 0.5
"""Share of a slot's content from which on the server keeps it without checking the RAM cache (b6751 and newer)."""

GROWS = 0.05
"""Minimum share of a prompt that a turn adds: smaller steps of two conversations would not interleave."""
SAME_PLACE = 16
"""Tokens: common prefixes that differ by no more end at the same place."""
SAME_LENGTH = 2
"""Tokens by which prompts of one form differ."""
TYPED = 6
"""Requests in a row that show a cursor: six lengths are in this order by chance in one of 720 cases."""
FALLS = 3
"""Least number of different lengths of the text after a cursor; a client that rewrites its last message has one."""
LATE = 0.75
"""Share of a prompt from which on a common prefix ends in its last turn."""
OPEN = kit.RuledOut(
    "new-conversations",
    "not excluded: if these are separate prompts with one beginning, no conversation lost anything, and only that beginning was recomputed",
)
KEY = "separate"
"""Key of the matches of which that may be so: a finding of their own, and no more than a note."""


def takes_turns(s: kit.RuleContext) -> bool:
    """Whether, without a RAM cache, alternating growing conversations have the lengths of one that changes its head."""
    prompt = s.request.prompt_tokens or 0
    last = s.history[-1].seen.released_tokens if s.history else None
    return last is not None and prompt - last >= GROWS * prompt and goes_on_earlier(s)


def goes_on_earlier(s: kit.RuleContext) -> bool:
    """Whether, without a RAM cache, a prompt may continue its slot's content before the last turn."""
    prompt = s.request.prompt_tokens or 0
    earlier = (turn.seen.released_tokens for turn in s.history[:-1])
    return s.setup.ram == "off" and any(held is not None and held <= prompt for held in earlier)


def copy_refused(s: kit.RuleContext) -> bool:
    """The thread's last state was saved to RAM but not restored: the new prompt does not match it."""
    r, facts, before = s.request, s.facts, s.taker
    if r.ram_refused:
        return True
    if not s.setup.ram_keeps_all or r.restored_from_ram:
        return False
    if "ram_failed" in r.marks or before is None:
        return False
    if r.seen.choice.selected_by == "lcp" and (r.f_keep or 0.0) >= UNSEARCHED and not r.seen.choice.looked:
        return False
    if "ram_saves" in facts.shows:
        return before.ram_saved  # infill, embeddings and reranking take a slot without saving what it held
    if before.processed_tokens is None:
        return False  # no timings, as of embeddings and reranking: whether the copy was made is not known
    # what a slot held is saved when it is taken by LRU or keeps less than half (server_slot selection, b6751 and newer)
    return before.seen.choice.selected_by == "lru" or (before.f_keep is not None and before.f_keep < 0.5)


def perhaps_separate(s: kit.RuleContext, code: str) -> bool:
    """Whether the server may have lost no more than the beginning of completions, or of a text with several endings.

    A chat's checkpoints are not made for completions, and several endings lose their text once. Forms after one
    instruction lose the instruction each time, which newer builds keep: that is more than a note. Later prompts also
    decide for earlier ones: ``code`` is the code of the checking rule.
    """
    if s.is_settled(code):
        return True
    if s.known or s.request.text_lcp is not None or s.lcp is None:
        return False
    return (constant_end(s, 2) and not one_form(s)) or in_variants(s) or s.is_infill


def noted(s: kit.RuleContext, code: str, match: kit.Match) -> kit.Match:
    """A rule's match, lowered to a note if prompts may be separate."""
    if perhaps_separate(s, code):
        match.key, match.severity, match.settles = KEY, "note", True
    return match


def left_open(g: kit.MatchGroup) -> list[kit.RuledOut]:
    """Look-alikes that remain possible for such a note."""
    return [OPEN] if g.worst.key == KEY else []


def one_form(s: kit.RuleContext) -> bool:
    """Whether the prompts are texts of one form after one instruction.

    All diverge at one place in the first prompt, and have one length, or grow and shrink, or do not grow beside another
    conversation. A client that drops old messages leaves prompts of different lengths, or each shorter than the last.
    """
    if not s.history or not in_first_prompt(s):
        return False
    sizes = of_prompts(s)
    shrinks = any(after < before - SAME_PLACE for before, after in pairwise(sizes))
    shrinks = shrinks and (s.threads > 1 or any(after > before + SAME_PLACE for before, after in pairwise(sizes)))
    return (shrinks or max(sizes) - min(sizes) <= SAME_LENGTH) and all(
        abs((turn.common_prefix_tokens or 0) - (s.lcp or 0)) <= SAME_PLACE for turn in s.history[1:]
    )


def constant_end(s: kit.RuleContext, least: int) -> bool:
    """Whether every prompt (at least ``least``) inserts its new text before an unchanged end, and continues none.

    Editors that ask for completions do this; nothing could have reused more. A client that moves an instruction of one
    length to the newest message looks the same.
    """
    return ends_alike([*s.history, s.request], least)


def cursor_moves(s: kit.RuleContext) -> bool:
    """Whether an editor sent the last of these prompts."""
    return typed([*s.history, s.request][-TYPED:])


def typed(turns: Sequence[kit.Request]) -> bool:
    """Whether the text after the divergence keeps its length or shrinks each time, while the divergence moves forward.

    A user types, and the editor sends the text before the cursor and then the text after it.
    """
    places = [turn.common_prefix_tokens or 0 for turn in turns]
    rests = [(turn.reference_tokens or 0) - place for turn, place in zip(turns, places, strict=True)]
    return (
        len(turns) >= TYPED
        and turns[0].thread_turn > 0
        and min(rests) > SAME_PLACE
        and len(set(rests)) >= FALLS
        and all(before < after for before, after in pairwise(places))
        and all(before >= after for before, after in pairwise(rests))
    )


def ends_alike(turns: Sequence[kit.Request], least: int) -> bool:
    """Whether each of these prompts diverges from the previous one before an end of one length."""
    ends = [(a.prompt_tokens or 0) - (b.common_prefix_tokens or 0) for a, b in pairwise(turns)]
    return len(ends) >= least and min(ends) > SAME_PLACE and max(ends) - min(ends) <= SAME_LENGTH


def in_variants(s: kit.RuleContext) -> bool:
    """Whether at least three earlier prompts were one text with different endings, and none continued the last one.

    Translations of a text are such prompts, and endings of a question. The next text shares only the instruction with
    them. Prompts of a conversation also diverge at one place if a value there changes, but they grow.
    """
    pairs = [pair for pair in pairwise(s.history) if _part_alike(*pair)]
    grows = all((after.prompt_tokens or 0) > (before.prompt_tokens or 0) + SAME_LENGTH for before, after in pairs)
    goes_on = any((b.common_prefix_tokens or 0) >= (a.prompt_tokens or 0) for a, b in pairwise(s.history))
    return len(pairs) >= 2 and not (grows or goes_on)


def _part_alike(before: kit.Request, after: kit.Request) -> bool:
    """Whether two prompts part near their end, at one place."""
    place = after.common_prefix_tokens or 0
    return place >= LATE * (after.prompt_tokens or 0) and abs((before.common_prefix_tokens or 0) - place) <= SAME_PLACE


def moves_on(s: kit.RuleContext) -> bool:
    """Whether three prompts in a row of a growing conversation diverge from the one before, each further back.

    Text that is sent behind the history does so; a head does not.
    """
    turns = [*s.history[-2:], s.request]
    if len(turns) < 3 or s.own_slot is not True or any(turn.held_thread != turn.thread for turn in turns):
        return False
    places, sizes = [turn.common_prefix_tokens or 0 for turn in turns], [turn.prompt_tokens or 0 for turn in turns]
    return min(places) > 0 and all(b > a + SAME_PLACE for found in (places, sizes) for a, b in pairwise(found))


def in_history(s: kit.RuleContext) -> bool:
    """Whether the prompt diverges behind the head of its conversation, even if in its first half."""
    return s.is_behind_first or moves_on(s)


def in_first_prompt(s: kit.RuleContext) -> bool:
    """The prefix ends inside the first prompt, where a new conversation with the same system prompt diverges too."""
    return s.history[0].prompt_tokens is None or (s.lcp or 0) < s.history[0].prompt_tokens if s.history else True


def of_prompts(s: kit.RuleContext) -> list[int]:
    """Tokens of the prompts of a conversation, the oldest first."""
    return [turn.prompt_tokens or 0 for turn in s.history] + [s.request.prompt_tokens or 0]
