"""CD211: a short prompt's checkpoint was dropped by the minimum distance, though the list had room."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.checkpoints import CLEARED, dropped, min_step, same_prefix, too_dense
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the needed checkpoint was dropped as too close to an earlier one, in a prompt shorter than the distance."""
    r = s.request
    lost = dropped(s)
    if lost is None or not too_dense(s, lost):
        return None
    return kit.Match(
        lost.tokens - (r.cached_tokens or 0), "high" if r.seen.checks or r.seen.forced else "medium", found=lost
    )


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the line that dropped it."""
    r, lost = s.request, match.found
    shown = kit.marked(
        r,
        ("check", "the newest checkpoint that was kept"),
        ("restored", "the older checkpoint that was used instead"),
        ("forced", "the symptom"),
        kit.REUSED,
        kit.RECOMPUTED,
    )
    numbers = {
        "lcp": s.lcp, "tokens": lost.tokens, "line": lost.line, "cached": r.cached_tokens, "step": min_step(s.facts),
    }  # fmt: skip
    return kit.Proof(
        (kit.Mark(lost.line, lost.text), "the dropped checkpoint, too close to an earlier one"), shown[:4], numbers
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the distance, and the option that turns it off."""
    f = g.numbers
    return kit.FindingText(
        f"the checkpoint of {kit.n(f['tokens'])} tokens had been dropped because an earlier checkpoint was within {kit.n(f['step'])} tokens: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"{kit.n(f['lcp'])} tokens matched. In these builds every request drops checkpoints that are closer than the minimum distance to the previous checkpoint. A prompt shorter than the minimum distance keeps only its first and its newest checkpoint, and only {kit.n(f['cached'])} tokens could be reused.",
        [
            advice.option(
                g.session,
                server_options.CHECKPOINT_MIN_STEP,
                "0",
                "Turn the minimum distance between checkpoints off. The server then keeps up to --ctx-checkpoints checkpoints; each checkpoint costs main memory.",
            ),
            advice.update(g.session, "b11063 and newer shorten the list only when it is nearly full (PR #28302)."),
        ],
        [
            same_prefix(f["lcp"]),
            kit.RuledOut(
                "checkpoint-evicted",
                "the checkpoint list was not full; the log line gives the distance as the reason, not the age",
            ),
            kit.RuledOut("no-usable-checkpoint", f"a checkpoint was made, then dropped at line {f['line']}"),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/28302"],
    )


RULE = kit.rule(
    __name__,
    "A short prompt's checkpoint was dropped because another checkpoint was too close",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("dropped",),
    unless=(*CLEARED, "CD205"),
)
