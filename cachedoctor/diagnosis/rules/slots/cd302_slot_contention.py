"""CD302: more conversations than slots, again and again."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held, side_request

STEALS = 1
"""Earlier losses of the same kind before it is called contention."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when several slots, or three and more conversations, are not enough and it happened before."""
    if not other_held(s) or s.steals < STEALS or s.threads <= max(s.facts.n_slots or 1, 2) or side_request(s):
        return None
    if s.is_strict:  # one conversation is in several slots, so that they are too few to count
        return None
    return kit.Match(s.lost, "medium")


PROOF = kit.lines(
    ("select", "the slot's content does not match"),
    kit.REUSED,
    kit.RECOMPUTED,
    most=2,
    numbers=lambda s: {"threads": s.threads, "slots": s.facts.n_slots or 1},
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say how many slots the traffic needs."""
    f = g.numbers
    room = [advice.more_slots(g.session, f["threads"]), advice.cache_ram(g.session)]
    if g.session.setting("cache_ram_mib") == 0:
        room.reverse()  # main memory is cheaper than slots, and a prompt that was copied is not lost with its slot
    return kit.FindingText(
        f"{f['threads']} conversations share {'1 slot' if f['slots'] == 1 else str(f['slots']) + ' slots'} and evict each other: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Whenever a conversation continues, its slot contains another conversation.",
        room,
        [kit.RuledOut("prefix-diverges-early", "the prompt lengths belong to several alternating conversations")],
    )


RULE = kit.rule(
    __name__,
    "More conversations than slots",
    decide,
    PROOF,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD304", "CD308", "CD309", "CD314"),
)
