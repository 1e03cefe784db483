"""CD309: the client names the slot (id_slot), and several conversations name the same one."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.base import (
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
from cachedoctor.diagnosis.rules.slots.taken import CHANGED_HEAD, other_held
from cachedoctor.model import Remedy, RuledOut, Session


def decide(s: RuleContext) -> Match | None:
    """Fire when a named slot held another conversation although the server has more slots."""
    if not other_held(s) or not s.request.slot_named or (s.facts.n_slots or 1) < 2:
        return None
    return Match(s.lost, "medium" if s.steals >= 1 else "low")


def prove(s: RuleContext, _: Match) -> Proof:
    """Show that the client named the slot."""
    r = s.request
    primary, *related = marked(
        r,
        ("select", "the slot was named by the client"),
        ("start", "no line of a slot choice before it: the client named the slot"),
        ("cached", "tokens reused"),
        ("n_past", "common prefix with what the slot held"),
        ("timing", "tokens recomputed"),
    )
    numbers = {"slots": s.facts.n_slots, "printed": r.seen.choice.selected_by == "id", "held": r.held_tokens}
    return Proof(primary, related[:3], numbers)


def _why(session: Session) -> str:
    if session.at_least(9873) is True:
        return "The RAM prompt cache did not bring it back either."
    return "Up to b9713 a slot named by the client is taken without saving its prompt to the RAM cache."


def say(g: Group) -> FindingText:
    """Send the user to the client's setting."""
    f, r = g.numbers, g.worst_request
    return FindingText(
        f"the client sends several conversations to slot {r.slot} by id_slot, though the server has {f['slots']} slots: "
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"The slot held {n(f['held'])} tokens of another conversation, which the request overwrote. {_why(g.session)}",
        [
            Remedy(
                "In the client: leave id_slot out and let the server choose, or give every conversation a number of its own (0 to "
                f"{(f['slots'] or 2) - 1})."
            )
        ],
        [
            RuledOut(
                "slot-contention",
                "the server did not choose this slot: the request named it"
                if f["printed"]
                else "this build prints every choice that it makes itself, and there is none before this request",
            )
        ],
    )


RULE = RequestRule(
    "CD309",
    "id-slot-pinned",
    "The client names one slot for several conversations",
    decide,
    prove,
    say,
    on=("taken",),
    unless=CHANGED_HEAD,
)
