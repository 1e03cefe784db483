"""CD301: another conversation had taken the slot."""

from __future__ import annotations

from cachedoctor.model import RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.taken import ALTERNATE, other_held


def check(s: Situation) -> Hit | None:
    """Fire when the reference is not what the slot held."""
    r = s.request
    if not other_held(s) or s.fired & {"CD302", "CD303", "CD304", "CD307", "CD308", "CD309"}:
        return None
    shown = proof(
        r,
        ("select", "the slot's content does not match"),
        ("n_past", "common prefix with what the slot held"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    return Hit(
        s.lost,
        "medium" if s.steals >= 2 else "low",
        shown[0],
        shown[1:3],
        {
            "thread": r.thread,
            "other": r.held_thread,
            "held": r.held_tokens,
            "reference": r.reference_tokens,
            "unsure": s.steals < 2,
        },
    )


def words(g: Group) -> Words:
    """Offer slots and the RAM cache."""
    f, r = g.worst.facts, g.worst_request
    out = (
        [
            RuledOut(
                "prefix-diverges-early",
                "not excluded: if this conversation changed its head at that moment, the log looks the same",
            )
        ]
        if f["unsure"]
        else [ALTERNATE]
    )
    return Words(
        f"another conversation had taken slot {r.slot}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"The slot held {n(f['held'])} tokens of another conversation when this one came back with {n(r.prompt_tokens)}; its {n(f['reference'])} tokens were gone.",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        out,
    )


RULE = Rule(
    "CD301",
    "slot-held-other-prompt",
    "Another conversation had taken the slot",
    check,
    words,
    on=("taken",),
    after=("CD108", "CD302", "CD303", "CD304", "CD307", "CD308", "CD309"),
)
