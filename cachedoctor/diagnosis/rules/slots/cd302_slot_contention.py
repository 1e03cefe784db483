"""CD302: more conversations than slots, again and again."""

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
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held, side_request
from cachedoctor.model import RuledOut

STEALS = 1
"""Earlier losses of the same kind before it is called contention."""


def decide(s: RuleContext) -> Match | None:
    """Fire when several slots, or three and more conversations, are not enough and it happened before."""
    if not other_held(s) or s.steals < STEALS or s.threads <= max(s.facts.n_slots or 1, 2) or side_request(s):
        return None
    return Match(s.lost, "medium")


def prove(s: RuleContext, _: Match) -> Proof:
    """Show that the slot's content does not match."""
    primary, *related = marked(
        s.request,
        ("select", "the slot's content does not match"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    return Proof(primary, related[:2], {"threads": s.threads, "slots": s.facts.n_slots or 1})


def say(g: Group) -> FindingText:
    """Say how many slots the traffic needs."""
    f = g.numbers
    return FindingText(
        f"{f['threads']} conversations share {f['slots']} slots and push each other out: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Each time a conversation returns, its slot holds another one's prompt.",
        [
            advice.more_slots(g.session, f["threads"]),
            advice.cache_ram(g.session),
        ],
        [RuledOut("prefix-diverges-early", "the lengths belong to several conversations that come in turn")],
    )


RULE = RequestRule(
    "CD302",
    "slot-contention",
    "More conversations than slots",
    decide,
    prove,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD304", "CD308", "CD309"),
)
