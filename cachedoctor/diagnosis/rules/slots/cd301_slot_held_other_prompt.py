"""CD301: another conversation had taken the slot."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, other_held


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the reference is not what the slot held."""
    return kit.Match(s.lost, "medium" if s.steals >= 2 else "low") if other_held(s) else None


PROOF = kit.lines(
    ("select", "the slot's content does not match"),
    ("n_past", "common prefix with the slot's content"),
    kit.REUSED,
    kit.RECOMPUTED,
    most=2,
    numbers=lambda s: {"unsure": s.steals < 2},
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer slots and the RAM cache."""
    f, r = g.numbers, g.worst_request
    out = (
        [
            kit.RuledOut(
                "prefix-diverges-early",
                "not excluded: if the start of this conversation changed at that moment, the log looks the same",
            )
        ]
        if f["unsure"]
        else [ALTERNATE]
    )
    return kit.FindingText(
        f"another conversation had taken slot {r.slot}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The slot held {kit.n(r.held_tokens)} tokens of another conversation when this conversation continued with a prompt of {kit.n(r.prompt_tokens)} tokens; its own {kit.n(r.reference_tokens)} cached tokens were gone.",
        [advice.cache_ram(g.session), advice.more_slots(g.session)],
        out,
    )


RULE = kit.rule(
    __name__,
    "Another conversation had taken the slot",
    decide,
    PROOF,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD302", "CD303", "CD304", "CD307", "CD308", "CD309", "CD314"),
)
