"""CD301: another conversation had taken the slot."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.kit import (
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    marked,
    n,
    times,
)
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, other_held
from cachedoctor.model import RuledOut


def decide(s: RuleContext) -> Match | None:
    """Fire when the reference is not what the slot held."""
    return Match(s.lost, "medium" if s.steals >= 2 else "low") if other_held(s) else None


def prove(s: RuleContext, _: Match) -> Proof:
    """Show that the slot's content does not match."""
    r = s.request
    primary, *related = marked(
        r,
        ("select", "the slot's content does not match"),
        ("n_past", "common prefix with what the slot held"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    numbers = {"held": r.held_tokens, "reference": r.reference_tokens, "unsure": s.steals < 2}
    return Proof(primary, related[:2], numbers)


def say(g: Group) -> FindingText:
    """Offer slots and the RAM cache."""
    f, r = g.numbers, g.worst_request
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
    return FindingText(
        f"another conversation had taken slot {r.slot}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"The slot held {n(f['held'])} tokens of another conversation when this one came back with {n(r.prompt_tokens)}; its {n(f['reference'])} tokens were gone.",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        out,
    )


RULE = RequestRule(
    "CD301",
    "slot-held-other-prompt",
    "Another conversation had taken the slot",
    decide,
    prove,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD302", "CD303", "CD304", "CD307", "CD308", "CD309"),
)
