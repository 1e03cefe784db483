"""CD209: with mmproj loaded the checkpoint search is skipped, and the memory is cleared."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut
from cachedoctor.rules.base import LONG, Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire on a failed truncation deep in the prompt, with mmproj, on memory that cannot be cut."""
    r = s.request
    at = r.truncate_failed_at
    if at is None or s.session.setting("mmproj") is not True or not s.lost or s.rewinds_badly is False:
        return None
    if (
        not (at >= LONG or 2 * at >= (r.prompt_tokens or 0))
        or s.session.at_least(7079) is False
        or s.session.at_least(7965) is True
    ):
        return None
    return Hit(
        min(at, s.lost),
        "high" if s.rewinds_badly and s.session.at_least(7079) else "medium",
        proof(r, ("failed", "the truncation that failed"))[0],
        proof(r, ("n_past", "common prefix"), ("cached", "where reuse would have ended")),
        {"at": at},
    )


def words(g: Group) -> Words:
    """Name the builds and the ways out."""
    f = g.worst.facts
    return Words(
        f"with a multimodal projector loaded the server could not cut its memory at position {n(f['at'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        "Builds b7079 to b7964 skip the search for a checkpoint when mmproj is loaded, then fail to truncate and clear the slot.",
        [
            Remedy("Update llama.cpp to b8156 or newer (PR #19849 and #19877)."),
            Remedy("Or, if no images are needed, start without the projector.", ["llama-server ... --no-mmproj"]),
        ],
        [
            RuledOut("rollback-failed", "mmproj is loaded and the build is one that skips the search"),
            RuledOut("prefix-diverges-early", f"{n(f['at'])} tokens matched"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/19849", "https://github.com/ggml-org/llama.cpp/pull/19877"],
    )


RULE = Rule(
    "CD209",
    "mmproj-truncation",
    "With mmproj loaded the memory is cleared instead of rewound",
    check,
    words,
    on=("failed",),
)
