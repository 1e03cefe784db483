"""CD310: an idle slot was cleared, and the RAM prompt cache had no room for what it held."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire when a conversation came back whose idle slot had been cleared, and whose copy had left the RAM cache."""
    r = s.request
    evictions = s.session.settings.get("ram_evictions")
    if "idle_cleared" not in r.marks or evictions is None or not s.lost or r.restored_from_ram or not r.thread_turn:
        return None
    if s.lcp is not None and 2 * s.lcp > s.whole:
        return None  # the slot that it got holds most of it: nothing was missing
    shown = proof(
        r,
        ("idle_saved", "its copy goes to the RAM cache"),
        ("ram", "the search in the RAM cache"),
        ("select", "an empty slot, or another conversation's"),
        ("timing", "tokens recomputed"),
    )
    return Hit(
        s.lost,
        "medium",
        (r.marks["idle_cleared"], "the slot of this conversation was cleared while idle"),
        shown[:4],
        {"limit": s.session.setting("cache_ram_mib"), "line": evictions.line, "reference": r.reference_tokens},
    )


def words(g: Group) -> Words:
    """Say what clears idle slots, and the two ways out."""
    f, session = g.worst.facts, g.session
    limit = f" of {n(f['limit'])} MiB" if f["limit"] else ""
    return Words(
        f"an idle slot was cleared and the RAM prompt cache{limit} did not keep its {n(f['reference'])} tokens: {n(g.tokens)} tokens "
        f"recomputed over {times(g.count)}",
        "From b8664 on, with a KV cache shared by all slots, every launch saves the idle slots to RAM and clears them. That costs nothing while "
        "the RAM cache has room. This one throws out its oldest prompts, or does not take large ones (first at line "
        f"{f['line']}); by their number this copy was gone when the conversation came back.",
        [
            advice.cache_ram(session),
            advice.option(
                session,
                flags.CACHE_IDLE_SLOTS,
                "",
                "Or leave idle slots as they are. They then share the context with the slots at work.",
                off=True,
            ),
        ],
        [
            RuledOut("slot-held-other-prompt", "the slot was cleared while idle, before anyone else took it"),
            RuledOut("cache-ram-disabled", "the cache is on: it evicts"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/20993"],
    )


RULE = Rule(
    "CD310",
    "idle-slots-cleared",
    "Idle slots were cleared and the RAM prompt cache had no room for them",
    check,
    words,
    on=("idle_cleared",),
    after=("CD101", "CD102", "CD109", "CD111"),
)
