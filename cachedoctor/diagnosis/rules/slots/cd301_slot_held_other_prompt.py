"""CD301: another conversation had taken the slot."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, by_another_answer, other_held
from cachedoctor.knowledge import server_options

STRICT = "strict"
"""Key of requests for which another slot held the conversation, and was not similar enough."""
ANSWERS = "answers"
"""Key of requests whose slot one of several answers to another prompt had taken."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the reference is not what the slot held."""
    if s.elsewhere:
        return kit.Match(s.lost, "high", key=STRICT) if s.slot_taken else None
    if by_another_answer(s) and other_held(s):
        return kit.Match(s.lost, "high" if s.known else "medium", key=ANSWERS)
    return kit.Match(s.lost, "medium" if s.steals >= 2 else "low") if other_held(s) else None


PROOF = kit.lines(
    ("slot_copy", "another slot held the whole last prompt of this conversation"),
    ("select", "the slot's content does not match"),
    kit.PREFIX,
    kit.REUSED,
    kit.RECOMPUTED,
    most=2,
    numbers=lambda s: {"unsure": s.steals < 2, "kept": s.request.reference_lcp},
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer slots and the RAM cache."""
    f, r = g.numbers, g.worst_request
    if g.worst.key == STRICT:
        return _strict(g, f["kept"])
    if g.worst.key == ANSWERS:
        return _answers(g)
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


def _strict(g: kit.MatchGroup, kept: int) -> kit.FindingText:
    """Say that the server requires more similarity than the next turn of a conversation has."""
    prompt = g.worst_request.prompt_tokens or 1
    return kit.FindingText(
        f"the server requires so much similarity that it did not choose the slot of this conversation: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"An idle slot held {kit.n(kept)} tokens, and the prompt of {kit.n(prompt)} tokens begins with all of these: a similarity of {kept / prompt:.0%}. "
        "This is below the threshold (-sps), so the server took the least recently used slot.",
        [
            advice.option(
                g.session,
                server_options.SIMILARITY,
                "0.1",
                "Require less similarity, as the default does: a turn that adds much to a conversation then gets the slot of this conversation.",
            )
        ],
        [kit.RuledOut("prefix-diverges-early", "the prompt begins with the whole content of another slot")],
    )


def _answers(g: kit.MatchGroup) -> kit.FindingText:
    """Say that several answers to one prompt take as many slots."""
    r, slots = g.worst_request, (g.session.n_slots or 1) + 1
    return kit.FindingText(
        f"one of several answers to another prompt (n) had taken slot {r.slot}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Each further answer to a prompt takes a slot, and the server does not save what the slot held. The {kit.n(r.reference_tokens)} tokens of this conversation were overwritten.",
        [
            advice.slots(
                g.session,
                slots,
                f"Use a slot for every conversation and one for each further answer ({slots} slots as a start).",
            ),
            kit.Remedy("Or ask for one answer at a time: without n each request uses one slot."),
        ],
        [kit.RuledOut("cache-ram-disabled", "the server does not save a slot that a further answer takes")],
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
