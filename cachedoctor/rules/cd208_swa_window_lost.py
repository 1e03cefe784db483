"""CD208: the sliding window moved past the common prefix and nothing had been saved."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.rewinding import same_prefix, server_could_not


def check(s: Situation) -> Hit | None:
    """Fire on sliding-window memory without any checkpoint."""
    r, session = s.request, s.session
    if (
        session.memory != "swa"
        or not server_could_not(s)
        or r.checks
        or r.held_checkpoints
        or s.fired & {"CD202", "CD203", "CD207"}
    ):
        return None
    shown = proof(
        r,
        ("n_past", "common prefix, and the first position still held"),
        ("forced", "the symptom"),
        ("select", "how much matched"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    return Hit(
        s.server_lost,
        "high" if r.lcp_exact and r.forced else "medium",
        shown[0],
        shown[1:4],
        {"lcp": s.lcp, "window": session.setting("n_swa")},
    )


def words(g: Group) -> Words:
    """Offer checkpoints and the full-size cache, with their price."""
    f = g.worst.facts
    window = f" of {n(f['window'])} tokens" if f["window"] else ""
    return Words(
        f"the sliding window{window} had moved past the common prefix of {n(f['lcp'])} tokens: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Sliding-window layers keep only the last tokens. To go back further they need a checkpoint, and none was held.",
        [
            advice.option(
                g.session,
                flags.CTX_CHECKPOINTS,
                "32",
                f"Let the server keep checkpoints. {advice.checkpoint_cost(g.session, 32)}",
            ),
            advice.option(
                g.session,
                flags.SWA_FULL,
                "",
                "Or keep the whole cache of the sliding-window layers: exact reuse anywhere, at the memory of a full-attention model.",
            ),
        ],
        [
            same_prefix(f["lcp"]),
            RuledOut("swa-threshold-misfire", "no checkpoint was looked at"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/13194", "https://github.com/ggml-org/llama.cpp/pull/15293"],
    )


RULE = Rule(
    "CD208",
    "swa-window-lost",
    "The sliding window moved past the common prefix",
    check,
    words,
    needs=advice.needs_accounting,
    on=("stuck",),
    after=("CD109", "CD111", "CD202", "CD203", "CD205", "CD207"),
)
