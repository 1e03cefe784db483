"""CD208: the sliding window moved past the common prefix and nothing had been saved."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import CLEARED, same_prefix, server_could_not
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on sliding-window memory without any checkpoint."""
    r = s.request
    if s.facts.memory != "swa" or r.seen.checks or r.seen.held_checkpoints or not server_could_not(s):
        return None
    return kit.Match(s.server_lost, "high" if r.lcp_exact and r.seen.forced else "medium")


PROOF = kit.lines(
    ("n_past", "common prefix and the first position still in memory"),
    ("forced", "the symptom"),
    ("select", "how much matched"),
    kit.REUSED,
    kit.RECOMPUTED,
    most=3,
    numbers=lambda s: {"window": s.facts.setting("n_swa")},
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Offer checkpoints and the full-size cache, with their price."""
    f, r = g.numbers, g.worst_request
    window = f" of {kit.n(f['window'])} tokens" if f["window"] else ""
    return kit.FindingText(
        f"the sliding window{window} had moved past the common prefix of {kit.n(r.common_prefix_tokens)} tokens: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Sliding-window layers keep only the last tokens. To go back further, these layers need a checkpoint, and the slot had no checkpoint.",
        [
            advice.option(
                g.session,
                server_options.CTX_CHECKPOINTS,
                "32",
                f"Let the server keep checkpoints. {advice.checkpoint_cost(g.session, 32)}",
            ),
            advice.option(
                g.session,
                server_options.SWA_FULL,
                "",
                "Or keep the whole cache of the sliding-window layers: any common prefix can then be reused in full, but the cache needs as much memory as a full-attention model.",
            ),
        ],
        [
            same_prefix(r.common_prefix_tokens),
            kit.RuledOut("swa-threshold-misfire", "no checkpoint was checked"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/13194", "https://github.com/ggml-org/llama.cpp/pull/15293"],
    )


RULE = kit.rule(
    __name__,
    "The sliding window moved past the common prefix",
    decide,
    PROOF,
    say,
    needs=advice.needs_accounting,
    on=("stuck",),
    unless=(*CLEARED, "CD202", "CD203", "CD207"),
)
