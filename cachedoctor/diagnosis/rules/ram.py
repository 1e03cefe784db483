"""What a log lets us know of the RAM prompt cache."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import RuleContext

UNSEARCHED = 0.5
"""Share of a slot's content from which on the server keeps it without a look into the RAM cache (b6751 and newer)."""

GROWS = 0.05
"""Share of a prompt that a turn adds at least: smaller steps of two conversations would not fall between each other."""


def takes_turns(s: RuleContext) -> bool:
    """Without a RAM cache, growing conversations in turn have the lengths of one that changes its head."""
    prompt = s.request.prompt_tokens or 0
    last = s.history[-1].seen.released_tokens if s.history else None
    return last is not None and prompt - last >= GROWS * prompt and goes_on_earlier(s)


def goes_on_earlier(s: RuleContext) -> bool:
    """Whether, without a RAM cache, a prompt may continue what its slot held before the last turn."""
    prompt = s.request.prompt_tokens or 0
    earlier = (turn.seen.released_tokens for turn in s.history[:-1])
    return s.setup.ram == "off" and any(held is not None and held <= prompt for held in earlier)


def copy_refused(s: RuleContext) -> bool:
    """The thread's last state was saved to RAM, and the cache did not give it back: the new prompt does not match it."""
    r, facts, before = s.request, s.facts, s.slot_before
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
