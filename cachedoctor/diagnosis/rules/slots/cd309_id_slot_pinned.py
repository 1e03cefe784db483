"""CD309: the client names the slot (id_slot), and several conversations name the same one."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a named slot held another conversation although the server has more slots."""
    if not other_held(s) or not s.request.slot_named or (s.facts.n_slots or 1) < 2:
        return None
    return kit.Match(s.lost, "medium" if s.steals >= 1 else "low")


PROOF = kit.lines(
    ("select", "the client chose the slot"),
    ("start", "no slot choice before this line: the client chose the slot"),
    kit.REUSED,
    kit.PREFIX,
    kit.RECOMPUTED,
    most=3,
    numbers=lambda s: {
        "slots": s.facts.n_slots,
        "printed": s.request.seen.choice.selected_by == "id",
    },
)


def _why(session: kit.Session) -> str:
    if session.at_least(9873) is True:
        return "The RAM prompt cache did not restore the conversation either."
    return "Up to b9713, if the client chooses a slot, the server does not save that slot's prompt to the RAM cache."


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Send the user to the client's setting."""
    f, r = g.numbers, g.worst_request
    return kit.FindingText(
        f"the client sends several conversations to slot {r.slot} by id_slot, though the server has {f['slots']} slots: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The slot held {kit.n(r.held_tokens)} tokens of another conversation, which the request overwrote. {_why(g.session)}",
        [
            kit.Remedy(
                "In the client: remove id_slot so the server chooses, or give every conversation its own slot number (0 to "
                f"{(f['slots'] or 2) - 1})."
            )
        ],
        [
            kit.RuledOut(
                "slot-contention",
                "the request chose this slot, not the server"
                if f["printed"]
                else "this build logs every slot choice, and there is none before this request",
            )
        ],
    )


RULE = kit.rule(
    __name__,
    "The client sends several conversations to one slot",
    decide,
    PROOF,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD314"),
)
