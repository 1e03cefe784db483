"""CD302: more conversations than slots, again and again."""

from __future__ import annotations

from cachedoctor.model import RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.taken import other_held, side_request

STEALS = 1
"""Earlier losses of the same kind before it is called contention."""


def check(s: Situation) -> Hit | None:
    """Fire when several slots, or three and more conversations, are not enough and it happened before."""
    r, slots = s.request, s.session.n_slots or 1
    if (
        not other_held(s)
        or side_request(s)
        or s.steals < STEALS
        or s.fired & {"CD304", "CD308", "CD309"}
        or s.threads <= max(slots, 2)
    ):
        return None
    shown = proof(
        r, ("select", "the slot's content does not match"), ("cached", "tokens reused"), ("timing", "tokens recomputed")
    )
    return Hit(s.lost, "medium", shown[0], shown[1:3], {"threads": s.threads, "slots": slots})


def words(g: Group) -> Words:
    """Say how many slots the traffic needs."""
    f = g.worst.facts
    return Words(
        f"{f['threads']} conversations share {f['slots']} slots and push each other out: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Each time a conversation returns, its slot holds another one's prompt.",
        [
            advice.more_slots(g.session, f["threads"]),
            advice.cache_ram(g.session),
        ],
        [RuledOut("prefix-diverges-early", "the lengths belong to several conversations that come in turn")],
    )


RULE = Rule(
    "CD302",
    "slot-contention",
    "More conversations than slots",
    check,
    words,
    on=("taken",),
    after=("CD108", "CD304", "CD308", "CD309"),
)
