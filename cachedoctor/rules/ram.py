"""What a log lets us know of the RAM prompt cache."""

from __future__ import annotations

from cachedoctor.rules.base import RuleContext

UNSEARCHED = 0.5
"""Share of a slot's content from which on the server keeps it without a look into the RAM cache (b6751 and newer)."""

GROWS = 0.05
"""Share of a prompt that a turn adds at least: smaller steps of two conversations would not fall between each other."""


def takes_turns(s: RuleContext) -> bool:
    """Without a RAM cache, growing conversations in turn have the lengths of one that changes its head."""
    prompt = s.request.prompt_tokens or 0
    if s.setup.ram != "off" or len(s.history) < 2:
        return False
    last = s.history[-1].released_tokens
    if last is None or prompt - last < GROWS * prompt:
        return False
    return any(turn.released_tokens is not None and turn.released_tokens <= prompt for turn in s.history[:-1])


def copy_refused(s: RuleContext) -> bool:
    """The thread's last state was saved to RAM, and the cache did not give it back: the new prompt does not match it."""
    r, facts, before = s.request, s.facts, s.slot_before
    if r.ram_refused:
        return True
    if not s.setup.ram_keeps_all or r.restored_from_ram:
        return False
    if "ram_failed" in r.marks or before is None:
        return False
    if r.selected_by == "lcp" and (r.f_keep or 0.0) >= UNSEARCHED and not r.ram_looked:
        return False
    if "ram_saves" in facts.shows:
        return before.ram_saved  # infill, embeddings and reranking take a slot without saving what it held
    if before.processed_tokens is None:
        return False  # no timings, as of embeddings and reranking: whether the copy was made is not known
    # what a slot held is saved when it is taken by LRU or keeps less than half (server_slot selection, b6751 and newer)
    return before.selected_by == "lru" or (before.f_keep is not None and before.f_keep < 0.5)
