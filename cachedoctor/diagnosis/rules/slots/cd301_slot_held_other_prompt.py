"""CD301: another conversation had taken the slot."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.slots.taken import ALTERNATE, CHANGED_HEAD, other_held
from cachedoctor.knowledge import server_options

STRICT = "strict"
"""Key of requests for which another slot held the conversation, and was not similar enough."""

ANSWERS = "answers"
"""Key of requests whose slot a further answer to one request had taken."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the reference is not what the slot held."""
    if s.elsewhere:
        return kit.Match(s.lost, "high", key=STRICT) if s.slot_taken else None
    if not other_held(s):
        return None
    return kit.Match(s.lost, "medium" if s.steals >= 2 else "low", key=ANSWERS if s.by_answer else "")


PROOF = kit.lines(
    ("slot_copy", "another slot held the whole last prompt of this conversation"),
    ("select", "the slot's content does not match"),
    kit.PREFIX,
    kit.REUSED,
    kit.RECOMPUTED,
    most=2,
    numbers=lambda s: {"unsure": s.steals < 2, "kept": s.request.reference_lcp, "threads": s.threads},
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer slots and the RAM cache."""
    f, r = g.numbers, g.worst_request
    if g.worst.key == STRICT:
        return _strict(g, f["kept"])
    if g.worst.key == ANSWERS:
        return _answers(g, f["threads"])
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


def _answers(g: kit.MatchGroup, threads: int) -> kit.FindingText:
    """Say that each further answer to a request takes a slot."""
    r, count = g.worst_request, max(threads, g.session.n_slots or 1) + 1
    return kit.FindingText(
        f"further answers to one request (n > 1) had taken slot {r.slot}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Each answer after the first needs a slot of its own (is_child = 1) and overwrites its content; the {kit.n(r.reference_tokens)} cached tokens of "
        "this conversation were gone. The server does not save to RAM what a further answer overwrites.",
        [
            advice.slots(
                g.session,
                count,
                f"Add one slot for each answer after the first: {count} slots in total here.",
            ),
            kit.Remedy(
                "Or ask for fewer answers at once, or for one after the other: the second request reuses the prompt of the first."
            ),
        ],
        [kit.RuledOut("prefix-diverges-early", "a further answer had used the slot of this conversation")],
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


RULE = kit.rule(
    __name__,
    "Another conversation had taken the slot",
    decide,
    PROOF,
    say,
    on=("taken",),
    unless=(*CHANGED_HEAD, "CD302", "CD303", "CD304", "CD307", "CD308", "CD309", "CD314"),
)
