"""CD211: a short prompt's checkpoint was dropped by the minimum distance, though the list had room."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import Confidence, Mark, Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, n, proof, times
from cachedoctor.rules.rewinding import dropped, min_step, same_prefix, too_dense


def check(s: Situation) -> Hit | None:
    """Fire when the needed checkpoint was dropped as too close to an earlier one, in a prompt shorter than the distance."""
    r = s.request
    lost = dropped(s)
    if lost is None or not too_dense(s, lost) or s.fired & {"CD205"}:
        return None
    shown = proof(
        r,
        ("check", "the newest that was kept"),
        ("restored", "the older one that was used instead"),
        ("forced", "the symptom"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    sure: Confidence = "high" if r.checks or r.forced else "medium"
    return Hit(
        lost.tokens - (r.cached_tokens or 0),
        sure,
        (Mark(lost.line, lost.text), "created by an earlier request, dropped as too close"),
        shown[:4],
        {
            "lcp": s.lcp,
            "tokens": lost.tokens,
            "line": lost.line,
            "cached": r.cached_tokens,
            "step": min_step(s.session),
        },
    )


def words(g: Group) -> Words:
    """Name the distance, and the option that turns it off."""
    f = g.worst.facts
    return Words(
        f"the checkpoint of {n(f['tokens'])} tokens had been dropped for lying within {n(f['step'])} tokens of an earlier one: "
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}",
        f"{n(f['lcp'])} tokens matched. In these builds every request drops the checkpoints of earlier ones that lie closer than the "
        f"minimum distance to their predecessor. A prompt shorter than that distance keeps its first checkpoint and its newest, and "
        f"what lies between is gone: only {n(f['cached'])} tokens could be reused.",
        [
            advice.option(
                g.session,
                flags.CHECKPOINT_MIN_STEP,
                "0",
                "Turn the minimum distance off. More checkpoints stay, up to --ctx-checkpoints; each costs main memory.",
            ),
            Remedy("Or update llama.cpp: b11063 and newer thin the list only when it is nearly full (PR #28302)."),
        ],
        [
            same_prefix(f["lcp"]),
            RuledOut("checkpoint-evicted", "the list was not full: the line says too close, not old"),
            RuledOut("no-usable-checkpoint", f"one had been made, and left the list at line {f['line']}"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/28302"],
    )


RULE = Rule(
    "CD211",
    "short-prompt-checkpoint-lost",
    "A short prompt's checkpoint was dropped for lying too close to another",
    check,
    words,
    needs=advice.needs_accounting,
    on=("dropped",),
    after=("CD109", "CD111", "CD205"),
)
