"""CD307: a short side request (title, summary, tags) took the slot of a conversation."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, length_of, other_held, side_request

OFTEN = 3
"""Earlier losses of the same kind before a request without timings is assumed to have displaced a conversation."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when what took the slot was short, began a conversation of its own, and this one came back after it."""
    if not other_held(s) or not side_request(s):
        return None
    thief = s.slot_before
    # a request that was cancelled leaves no timings either, and what it displaced was copied to RAM: once, not always
    timed = thief is not None and thief.prompt_tokens is not None
    return kit.Match(s.lost, "medium" if s.steals >= (1 if timed else OFTEN) else "low", found=thief)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the side request."""
    r, thief = s.request, match.found
    primary, *related = [
        *kit.marked(r, ("select", "the slot's content does not match"), kit.PREFIX),
        *kit.marked(thief, ("start", "the side request that took the slot")),
        *kit.marked(r, kit.REUSED, kit.RECOMPUTED),
    ]
    numbers = {"length": length_of(thief), "reference": r.reference_tokens, "unsure": match.confidence == "low"}
    return kit.Proof(primary, related[:3], numbers)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer a slot, the RAM cache, or another place for side requests."""
    f, r = g.numbers, g.worst_request
    unsure = kit.RuledOut(
        "prefix-diverges-early",
        "not excluded: if the start of this conversation changed at that moment, the log looks the same",
    )
    return kit.FindingText(
        f"a side request of {kit.n(f['length'])} tokens took slot {r.slot} from a conversation of {kit.n(f['reference'])} tokens: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Clients send short extra requests between the turns: titles, summaries, tags, sub-tasks. Such a request has another system prompt, so it shares nothing with the conversation. If no other slot is free, the request overwrites the conversation.",
        [
            advice.slots(g.session, (g.session.n_slots or 1) + 1, "Give side requests their own slot."),
            advice.cache_ram(g.session),
            advice.side_requests(),
        ],
        [unsure if f["unsure"] else ALTERNATE],
        ["https://github.com/ggml-org/llama.cpp/issues/22083"],
    )


RULE = kit.rule(
    __name__,
    "A short side request took the slot of a conversation",
    decide,
    prove,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD303", "CD304", "CD308", "CD309", "CD314"),
)
