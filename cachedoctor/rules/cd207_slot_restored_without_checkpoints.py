"""CD207: a slot file brought the tokens back without the checkpoints that the memory needs to go back."""

from __future__ import annotations

from cachedoctor.model import Confidence, Remedy, RuledOut
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.rewinding import same_prefix, server_could_not

WITH_CHECKPOINTS = 11549
"""Slot files hold checkpoints from this build on; b11063 writes none."""


def check(s: Situation) -> Hit | None:
    """Fire on the first request after a restore whose prompt parts from the restored tokens, and that found no checkpoint."""
    r, session = s.request, s.session
    if "slot_file" not in r.marks or session.at_least(WITH_CHECKPOINTS) is True or "slotfile_restored" in session.seen:
        return None
    if not server_could_not(s) or r.restored or session.setting("ctx_checkpoints") == 0:
        return None
    if session.at_least(6751) is False or s.fired & {"CD205"}:
        return None  # older builds have no checkpoints for such a file to lack
    shown = proof(
        r,
        ("n_past", "the common prefix, with tokens that no request of this slot had left"),
        ("forced", "the symptom"),
        ("check", "a checkpoint of the content before the restore"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    fresh = r.marks["slot_file"] is r.marks.get("select")
    sure: Confidence = "high" if fresh and r.forced else "medium"
    return Hit(
        s.server_lost,
        sure,
        (
            r.marks["slot_file"],
            "the slot holds this prompt, and had served no request since the start"
            if fresh
            else "the slot holds other tokens than its last request left",
        ),
        [entry for entry in shown if entry[0] is not r.marks["slot_file"]][:4],
        {"lcp": s.lcp, "held": r.held_tokens, "fresh": fresh},
    )


def words(g: Group) -> Words:
    """Say what the file lacks, and from which build on it is in it."""
    f, r = g.worst.facts, g.worst_request
    where = (
        f"Slot {r.slot} had served no request since the server started, and yet held about {n(f['held'])} tokens"
        if f["fresh"]
        else f"Slot {r.slot} held {n(f['held'])} tokens, which its last request had not left there"
    )
    return Words(
        f"slot {r.slot} was restored from a file, without checkpoints: {n(f['lcp'])} tokens matched and could not be reused; {n(g.tokens)} "
        f"tokens recomputed over {times(g.count)}",
        f"{where}: they came from a slot file. Before b{WITH_CHECKPOINTS} such a file holds the tokens and the newest state, but no checkpoints. "
        "Recurrent, hybrid and sliding-window memory can go on from there, but not back.",
        [
            Remedy(
                f"Update llama.cpp: b{WITH_CHECKPOINTS} and newer append the checkpoints to the slot file. Save the slot again after that."
            ),
            Remedy(
                "Until then: save a slot when its prompt ends with what every later prompt repeats (the system prompt, with max_tokens 0 or 1), "
                "so that nothing has to be taken back."
            ),
        ],
        [
            same_prefix(f["lcp"]),
            RuledOut(
                "no-usable-checkpoint", "the content came from a file: this build had no chance to make one for it"
            ),
        ],
        ["https://github.com/ggml-org/llama.cpp/issues/20819"],
    )


RULE = Rule(
    "CD207",
    "slot-restored-without-checkpoints",
    "A slot file brought the tokens back, but no checkpoints",
    check,
    words,
    on=("stuck",),
    after=("CD109", "CD111", "CD205"),
)
