"""CD209: with mmproj loaded the checkpoint search is skipped, and the memory is cleared."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on a failed truncation deep in the prompt, with mmproj, on memory that cannot be cut."""
    at, facts, badly = s.request.seen.truncate_failed_at, s.facts, s.setup.rewinds_badly
    if at is None or facts.setting("mmproj") is not True or not s.lost or badly is False:
        return None
    deep = at >= kit.LONG or 2 * at >= (s.request.prompt_tokens or 0)
    if not deep or facts.at_least(7079) is False or facts.at_least(7965) is True:
        return None
    return kit.Match(min(at, s.lost), "high" if badly and facts.at_least(7079) else "medium")


PROOF = kit.lines(
    ("n_past", "common prefix"),
    ("cached", "where reuse would have ended"),
    first=("failed", "the truncation that failed"),
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the builds and the ways out."""
    r = g.worst_request
    return kit.FindingText(
        f"with a multimodal projector loaded the server could not truncate its memory at position {kit.n(r.seen.truncate_failed_at)}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Builds b7079 to b7964 skip the search for a checkpoint when mmproj is loaded, then fail to truncate and clear the slot.",
        [
            advice.update(
                g.session,
                "b8156 and newer also search for a checkpoint if a projector is loaded (PR #19849 and #19877).",
            ),
            kit.Remedy(
                "Or, if no images are needed, start without the projector.",
                options=kit.as_typed("--no-mmproj"),
                purpose="depends",
            ),
        ],
        [
            kit.RuledOut("rollback-failed", "mmproj is loaded, and this build skips the search"),
            kit.RuledOut("prefix-diverges-early", f"{kit.n(r.seen.truncate_failed_at)} tokens matched"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/19849", "https://github.com/ggml-org/llama.cpp/pull/19877"],
    )


RULE = kit.rule(
    __name__, "With mmproj loaded the memory is cleared instead of rewound", decide, PROOF, say, on=("failed",)
)
