"""CD204: all checkpoints lie close together at the end, and the common prefix ends before them."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import APPEND_ONLY, CLEARED, same_prefix, server_could_not
from cachedoctor.knowledge.decision import EVERY

LEAST = 3
"""Checkpoints: one prompt alone leaves up to two near its end in every build."""
CLOSE = 2048
"""Tokens: neighbours further apart than this are not a bunch; a turn of a tool loop is usually shorter."""
END = 0.75
"""Share of the slot's content: a bunch begins after it."""


def bunch(s: kit.RuleContext) -> tuple[int, int, int] | None:
    """Return (count, tokens of the lowest, widest gap) of the checkpoints when they form a bunch beyond the prefix."""
    r = s.request
    ends = sorted({c.pos_max for c in r.seen.checks} or {b for _, b in r.seen.held_positions})
    held = r.held_tokens or r.reference_tokens
    if s.lcp is None or held is None or len(ends) < LEAST:
        return None
    widest = max(b - a for a, b in pairwise(ends))
    lowest = ends[0] + 1
    if lowest <= s.lcp or lowest < END * held or widest > CLOSE:
        return None
    return len(ends), lowest, widest


def made_near_the_end(facts: kit.Facts) -> bool:
    """The build makes checkpoints only near the end of a prompt.

    b6751 to b8351 at its end, b9538 to b10067 there and at the last user message (b9873 also at others that lie 8,192
    tokens apart); in between every 8,192 tokens as well (PR #20087), later at user messages throughout (PR #25420,
    #25472).
    """
    if facts.at_least(10068) is True or facts.at_least(6751) is False:
        return False
    return not (facts.at_least(8352) is True and facts.at_least(9538) is False)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when every checkpoint that was held lies in a bunch near the end, beyond the common prefix."""
    r, facts = s.request, s.facts
    if not server_could_not(s) or not made_near_the_end(facts) or r.restored or facts.setting("ctx_checkpoints") == 0:
        return None
    if "dropped_checkpoints" in facts.shows and not facts.starts_cold:
        return None  # what lay further up may have been dropped before this log begins
    if r.partial and s.slot_before is None and not facts.starts_cold:
        return None  # an excerpt: nothing of what was done to the list before
    found = bunch(s)
    if found is None:
        return None
    known = facts.at_least(6751) is True and (facts.at_least(8352) is False or facts.at_least(9538) is True)
    return kit.Match(s.server_lost, "high" if r.seen.checks and r.seen.forced and known else "medium", found=found)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the newest checkpoint, and where the prefix ends."""
    r = s.request
    count, lowest, widest = match.found
    held = r.held_tokens or r.reference_tokens
    return kit.proof(
        r,
        ("check", "the newest checkpoint"),
        ("forced", "the symptom"),
        kit.PREFIX_AND_CONTENT,
        ("select", "how much matched"),
        kit.REUSED,
        kit.RECOMPUTED,
        most=4,
        numbers={"count": count, "lowest": lowest, "widest": widest, "held": held},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say where they lie, and from which build on they are spread."""
    f, r = g.numbers, g.worst_request
    remedies = [
        advice.update(
            g.session,
            f"b10068 and newer save checkpoints at user messages throughout the prompt (PR #25420, #25472), by default {kit.n(EVERY)} tokens apart. Choose a small distance between checkpoints; each one costs main memory.",
            ["--checkpoint-min-step 1024"],
        )
    ]
    remedies.append(APPEND_ONLY)
    return kit.FindingText(
        f"all {f['count']} checkpoints are between token {kit.n(f['lowest'])} and the end, and none is inside the common prefix of "
        f"{kit.n(r.common_prefix_tokens)} tokens: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Each checkpoint is at most {kit.n(f['widest'])} tokens after the previous checkpoint, and the first {kit.n(f['lowest'])} of {kit.n(f['held'])} tokens have no checkpoint: this build saves states only near the end of a prompt. If the prompt changes before these checkpoints, the server has no checkpoint to restore.",
        remedies,
        [
            same_prefix(r.common_prefix_tokens),
            kit.RuledOut("checkpoint-evicted", "the log shows no dropped checkpoint inside the common prefix"),
            kit.RuledOut("swa-threshold-misfire", "every checkpoint that was checked is after the common prefix"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/25420", "https://github.com/ggml-org/llama.cpp/issues/25019"],
    )


RULE = kit.rule(
    __name__,
    "All checkpoints are close together near the end",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("stuck",),
    unless=(*CLEARED, "CD202", "CD203", "CD205", "CD207", "CD211"),
)
