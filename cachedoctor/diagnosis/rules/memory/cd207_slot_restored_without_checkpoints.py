"""CD207: a slot file brought the tokens back without the checkpoints that the memory needs to go back."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import CLEARED, same_prefix, server_could_not

WITH_CHECKPOINTS = 11549
"""Slot files hold checkpoints from this build on; b11063 writes none."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the first request after a restore whose prompt diverges from the restored tokens, and that found no checkpoint."""
    r, facts = s.request, s.facts
    if "slot_file" not in r.marks or facts.at_least(WITH_CHECKPOINTS) is True or "slot_file_checkpoints" in facts.shows:
        return None
    if not server_could_not(s) or r.restored or facts.setting("ctx_checkpoints") == 0:
        return None
    if facts.at_least(6751) is False:
        return None  # older builds have no checkpoints for such a file to lack
    return kit.Match(s.server_lost, "high" if _fresh(s) and r.seen.forced else "medium")


def _fresh(s: kit.RuleContext) -> bool:
    """Whether the slot had served no request since the start."""
    return s.request.seen.fresh


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show the line by which the slot holds what no request left in it."""
    r, fresh = s.request, _fresh(s)
    shown = kit.marked(
        r,
        ("n_past", "the common prefix; it contains tokens that did not come from a request on this slot"),
        ("forced", "the symptom"),
        ("check", "a checkpoint of the content before the restore"),
        kit.REUSED,
        kit.RECOMPUTED,
    )
    said = (
        "the slot holds this prompt but had served no request since the start"
        if fresh
        else "the slot does not hold the tokens of its last request"
    )
    return kit.Proof(
        (r.marks["slot_file"], said),
        [entry for entry in shown if entry[0] is not r.marks["slot_file"]][:4],
        {"lcp": s.lcp, "held": r.held_tokens, "fresh": fresh},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what the file lacks, and from which build on it is in it."""
    f, r = g.numbers, g.worst_request
    where = (
        f"Slot {r.slot} had served no request since the server started, but held about {kit.n(f['held'])} tokens"
        if f["fresh"]
        else f"Slot {r.slot} held {kit.n(f['held'])} tokens that did not come from its last request"
    )
    return kit.FindingText(
        f"slot {r.slot} was restored from a file without checkpoints, so {kit.n(f['lcp'])} matching tokens could not be reused: {kit.n(g.tokens)} "
        f"tokens recomputed in {kit.times(g.count)}",
        f"{where}, which came from a slot file. Before b{WITH_CHECKPOINTS} such a file holds the tokens and the newest state, but no checkpoints. Recurrent, hybrid and sliding-window memory can continue from that state, but cannot go back.",
        [
            advice.update(
                g.session,
                f"b{WITH_CHECKPOINTS} and newer append the checkpoints to the slot file. Save the slot again after the update.",
            ),
            kit.Remedy(
                "Until you update: send only the text that every later prompt repeats, such as the system prompt (with max_tokens 0 or 1), and then save the slot. The memory then never has to go back."
            ),
        ],
        [
            same_prefix(f["lcp"]),
            kit.RuledOut(
                "no-usable-checkpoint",
                "the content came from a slot file, and this build cannot make checkpoints for it",
            ),
        ],
        ["https://github.com/ggml-org/llama.cpp/issues/20819"],
    )


RULE = kit.rule(
    __name__,
    "A slot file restored the tokens, but no checkpoints",
    decide,
    prove,
    say,
    on=("stuck",),
    unless=(*CLEARED, "CD205"),
)
