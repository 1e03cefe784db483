"""CD209: with mmproj loaded the checkpoint search is skipped, and the memory is cleared."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.base import (
    LONG,
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
from cachedoctor.model import Remedy, RuledOut, as_typed


def decide(s: RuleContext) -> Match | None:
    """Fire on a failed truncation deep in the prompt, with mmproj, on memory that cannot be cut."""
    at, facts, badly = s.request.seen.truncate_failed_at, s.facts, s.setup.rewinds_badly
    if at is None or facts.setting("mmproj") is not True or not s.lost or badly is False:
        return None
    deep = at >= LONG or 2 * at >= (s.request.prompt_tokens or 0)
    if not deep or facts.at_least(7079) is False or facts.at_least(7965) is True:
        return None
    return Match(min(at, s.lost), "high" if badly and facts.at_least(7079) else "medium")


def prove(s: RuleContext, _: Match) -> Proof:
    """Show the server's message."""
    r = s.request
    return Proof(
        marked(r, ("failed", "the truncation that failed"))[0],
        marked(r, ("n_past", "common prefix"), ("cached", "where reuse would have ended")),
        {"at": r.seen.truncate_failed_at},
    )


def say(g: Group) -> FindingText:
    """Name the builds and the ways out."""
    f = g.numbers
    return FindingText(
        f"with a multimodal projector loaded the server could not cut its memory at position {n(f['at'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Builds b7079 to b7964 skip the search for a checkpoint when mmproj is loaded, then fail to truncate and clear the slot.",
        [
            advice.update(g.session, "b8156 and newer look for a checkpoint all the same (PR #19849 and #19877)."),
            Remedy(
                "Or, if no images are needed, start without the projector.",
                options=as_typed("--no-mmproj"),
                purpose="depends",
            ),
        ],
        [
            RuledOut("rollback-failed", "mmproj is loaded and the build is one that skips the search"),
            RuledOut("prefix-diverges-early", f"{n(f['at'])} tokens matched"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/19849", "https://github.com/ggml-org/llama.cpp/pull/19877"],
    )


RULE = RequestRule(
    "CD209",
    "mmproj-truncation",
    "With mmproj loaded the memory is cleared instead of rewound",
    decide,
    prove,
    say,
    on=("failed",),
)
