"""CD204: all checkpoints lie close together at the end, and the common prefix ends before them."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.knowledge.decision import EVERY
from cachedoctor.model import Confidence, Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.rewinding import same_prefix, server_could_not

LEAST = 3
"""Checkpoints: one prompt alone leaves up to two near its end in every build."""
CLOSE = 2048
"""Tokens: neighbours further apart than this are no bunch; a turn of a tool loop is usually shorter."""
END = 0.75
"""Share of the slot's content: a bunch begins behind it."""


def bunch(s: Situation) -> tuple[int, int, int] | None:
    """Return (count, tokens of the lowest, widest gap) of the checkpoints when they form a bunch beyond the prefix."""
    r = s.request
    ends = sorted({c.pos_max for c in r.checks} or {b for _, b in r.held_positions})
    held = r.held_tokens or r.reference_tokens
    if s.lcp is None or held is None or len(ends) < LEAST:
        return None
    widest = max(b - a for a, b in pairwise(ends))
    lowest = ends[0] + 1
    if lowest <= s.lcp or lowest < END * held or widest > CLOSE:
        return None
    return len(ends), lowest, widest


def made_near_the_end(s: Situation) -> bool:
    """The build makes checkpoints only near the end of a prompt.

    b6751 to b8351 at its end, b9538 to b10067 there and at the last user message (b9873 also at others that lie 8,192
    tokens apart); in between every 8,192 tokens as well (PR #20087), later at user messages throughout (PR #25420,
    #25472).
    """
    session = s.session
    if session.at_least(10068) is True or session.at_least(6751) is False:
        return False
    return not (session.at_least(8352) is True and session.at_least(9538) is False)


def check(s: Situation) -> Hit | None:
    """Fire when every checkpoint that was held lies in a bunch near the end, beyond the common prefix."""
    r = s.request
    if not server_could_not(s) or not made_near_the_end(s) or r.restored:
        return None
    if s.session.setting("ctx_checkpoints") == 0 or s.fired & {"CD202", "CD203", "CD205", "CD207", "CD211"}:
        return None
    if "ckpt_erase_old" in s.session.seen and not s.session.starts_cold:
        return None  # what lay further up may have been dropped before this log begins
    found = bunch(s)
    if found is None:
        return None
    shown = proof(
        r,
        ("check", "the newest of them"),
        ("forced", "the symptom"),
        ("n_past", "common prefix, and what the slot held"),
        ("select", "how much matched"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    known = s.session.at_least(6751) is True and (s.session.at_least(8352) is False or s.session.at_least(9538) is True)
    sure: Confidence = "high" if r.checks and r.forced and known else "medium"
    count, lowest, widest = found
    return Hit(
        s.server_lost,
        sure,
        shown[0],
        shown[1:5],
        {"lcp": s.lcp, "count": count, "lowest": lowest, "widest": widest, "held": r.held_tokens or r.reference_tokens},
    )


def words(g: Group) -> Words:
    """Say where they lie, and from which build on they are spread."""
    f = g.worst.facts
    remedies = [
        Remedy(
            "Update llama.cpp and choose a small distance: b10068 and newer save at user messages throughout the prompt (PR #25420, #25472), "
            f"by default {n(EVERY)} tokens apart. Each checkpoint costs main memory.",
            ["llama-server ... --checkpoint-min-step 1024"],
        )
    ]
    remedies.append(
        Remedy("In the client: keep the history append-only; on such models cut rarely and in large pieces.")
    )
    return Words(
        f"all {f['count']} checkpoints lie between token {n(f['lowest'])} and the end, none at or below the common prefix of "
        f"{n(f['lcp'])}: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"Each lies at most {n(f['widest'])} tokens behind the one before, and the first {n(f['lowest'])} of {n(f['held'])} tokens have "
        "none: this build saves states only near the end of a prompt. A change further up finds nothing to go back to.",
        remedies,
        [
            same_prefix(f["lcp"]),
            RuledOut("checkpoint-evicted", "no checkpoint at or below the common prefix had been dropped"),
            RuledOut("swa-threshold-misfire", "every checkpoint that was looked at lies beyond the common prefix"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/25420", "https://github.com/ggml-org/llama.cpp/issues/25019"],
    )


RULE = Rule(
    "CD204",
    "checkpoints-bunched",
    "All checkpoints lie close together near the end",
    check,
    words,
    needs=advice.needs_accounting,
    on=("stuck",),
    after=("CD109", "CD111", "CD202", "CD203", "CD205", "CD207", "CD211"),
)
