"""CD310: an idle slot was cleared, and the RAM prompt cache had no room for what it held."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a conversation came back whose idle slot had been cleared, and whose copy had left the RAM cache."""
    r = s.request
    if "idle_cleared" not in r.marks or s.facts.said("ram_evictions") is None:
        return None
    if not s.lost or r.restored_from_ram or not r.thread_turn:
        return None
    if s.lcp is not None and 2 * s.lcp > s.whole:
        return None  # the slot that it got holds most of it: nothing was missing
    earlier = s.earlier
    if earlier is None:
        return kit.Match(s.lost, "medium")
    if not earlier:
        return None  # the slot of the only turn that it may continue from was not cleared yet
    return kit.Match(max(0, min(s.lost, earlier - (r.cached_tokens or 0))), "medium", at_most=s.lost)


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show the slot that was cleared, and where its copy went."""
    r, first = s.request, s.facts.said("ram_evictions")
    return kit.proof(
        r,
        ("idle_saved", "the slot's copy goes to the RAM cache"),
        ("ram", "the search in the RAM cache"),
        ("select", "an empty slot, or a slot of another conversation"),
        kit.RECOMPUTED,
        first=(r.marks["idle_cleared"], "the slot of this conversation was cleared while idle"),
        most=4,
        numbers={
            "limit": s.facts.setting("cache_ram_mib"),
            "line": None if first is None else first.line,
        },
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what clears idle slots, and the two ways out."""
    f, r, session = g.numbers, g.worst_request, g.session
    limit = f" of {kit.n(f['limit'])} MiB" if f["limit"] else ""
    return kit.FindingText(
        f"an idle slot was cleared and the RAM prompt cache{limit} did not keep its {kit.n(r.reference_tokens)} tokens: {kit.recomputed(g)} "
        f"in {kit.times(g.count)}",
        f"From b8664 on, if all slots share the KV cache, each new request makes the server save the idle slots to RAM and clear them. Clearing slots costs nothing while the RAM cache has room. This RAM cache evicts its oldest prompts or does not save large prompts (first at line {f['line']}), and the copy of this conversation was gone when the conversation continued.",
        [
            advice.cache_ram(session),
            advice.option(
                session,
                server_options.CACHE_IDLE_SLOTS,
                "",
                "Or do not clear idle slots. Idle slots then share the context with the busy slots.",
                off=True,
            ),
        ],
        [
            kit.RuledOut(
                "slot-held-other-prompt", "the slot was cleared while idle, before another conversation took it"
            ),
            kit.RuledOut("cache-ram-disabled", "the log shows evictions, so the RAM cache is on"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/20993"],
    )


RULE = kit.rule(
    __name__,
    "Idle slots were cleared and the RAM prompt cache had no room for them",
    decide,
    prove,
    say,
    on=("idle_cleared",),
)
