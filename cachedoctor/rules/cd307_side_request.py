"""CD307: a short side request (title, summary, tags) took the slot of a conversation."""

from __future__ import annotations

from cachedoctor.model import Confidence, Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.taken import ALTERNATE, other_held, side_request


def check(s: Situation) -> Hit | None:
    """Fire when what took the slot was short, began a conversation of its own, and this one came back after it."""
    r, thief = s.request, s.slot_before
    if not other_held(s) or not side_request(s) or s.fired & {"CD303", "CD304", "CD308", "CD309"} or thief is None:
        return None
    shown = [
        *proof(r, ("select", "the slot's content does not match"), ("n_past", "common prefix with what the slot held")),
        *proof(thief, ("start", "the side request that took the slot")),
        *proof(r, ("cached", "tokens reused"), ("timing", "tokens recomputed")),
    ]
    sure: Confidence = "medium" if s.steals >= 1 else "low"
    facts = {"length": thief.prompt_tokens, "reference": r.reference_tokens, "unsure": sure == "low"}
    return Hit(s.lost, sure, shown[0], shown[1:4], facts)


def words(g: Group) -> Words:
    """Offer a slot, the RAM cache, or another place for side requests."""
    f, r = g.worst.facts, g.worst_request
    unsure = RuledOut(
        "prefix-diverges-early", "not excluded: if this conversation changed its head at that moment, it looks the same"
    )
    return Words(
        f"a side request of {n(f['length'])} tokens took slot {r.slot} from a conversation of {n(f['reference'])}: "
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Clients send short requests of their own between the turns: titles, summaries, tags, sub-tasks. With another system prompt "
        "they share nothing with the conversation, and overwrite it when no other slot is free.",
        [
            advice.slots(g.session, (g.session.n_slots or 1) + 1, "Give side requests a slot beside the conversation."),
            advice.cache_ram(g.session),
            Remedy(
                "Or let the client send them to a small model of their own (Claude Code: ANTHROPIC_DEFAULT_HAIKU_MODEL; OpenCode: "
                "small_model in opencode.json; Open WebUI: the task model in the admin settings), or switch them off."
            ),
        ],
        [unsure if f["unsure"] else ALTERNATE],
        ["https://github.com/ggml-org/llama.cpp/issues/22083"],
    )


RULE = Rule(
    "CD307",
    "side-request",
    "A short side request took the slot of a conversation",
    check,
    words,
    on=("taken",),
    after=("CD108", "CD303", "CD304", "CD308", "CD309"),
)
