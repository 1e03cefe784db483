"""CD213: a checkpoint that fitted could not be restored."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.base import (
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    SessionFinding,
    marked,
    n,
    stated,
    times,
)
from cachedoctor.knowledge import server_options
from cachedoctor.model import Confidence, Remedy, RuledOut, Session

_SERVER = (b"failed to restore context checkpoint", b"failed to restore SWA checkpoint", b"checkpoint size mismatch")
"""Words of the server's own lines; libllama's speak of a saved state, whatever it was, and forks have others."""


def decide(s: RuleContext) -> Match | None:
    """Fire on the message, or on libllama's own between a check and the forcing."""
    r = s.request
    covered, mark = r.seen.restore_failed, r.marks.get("checkpoint_failed")
    if covered is None or mark is None:
        return None
    most = covered if s.lcp is None else min(covered, s.lcp)
    sure: Confidence = "high" if any(words in mark.text for words in _SERVER) else "medium"
    if sure == "medium" and r.cached_tokens:
        return None  # what was restored instead is reused
    return Match(max(0, most - (r.cached_tokens or 0)), sure, found=covered)


def prove(s: RuleContext, match: Match) -> Proof:
    """Show the message."""
    shown = marked(
        s.request,
        ("n_past", "common prefix"),
        ("forced", "the whole prompt is computed"),
        ("cached", "tokens reused"),
        ("timing", "tokens recomputed"),
    )
    mark = s.request.marks["checkpoint_failed"]
    related = [line for line in shown if line[0].line != mark.line][:3]
    return Proof((mark, "the restore that failed"), related, {"covered": match.found})


_WHY = (
    "The checkpoint passed the comparison, and the memory did not take its state back: no free cells, another size, or a broken state. "
    "Up to b9093 the server then computes the whole prompt; from b9294 on the process ends."
)
_SEE = ["https://github.com/ggml-org/llama.cpp/pull/15293"]


def _remedies(session: Session) -> list[Remedy]:
    shared = (
        [
            advice.option(
                session,
                server_options.KV_UNIFIED,
                "",
                "The slots share the memory, and another slot may hold the cells that it needs: give each its own part.",
                off=True,
            )
        ]
        if session.setting("kv_unified") is True
        else []
    )
    return [
        *shared,
        Remedy(
            f"Update {session.program or 'llama.cpp'}, and report it with the size that the line names if it comes again."
        ),
        Remedy(
            "With a draft model or a quantised KV cache, try without: their states are saved and restored differently."
        ),
    ]


def say(g: Group) -> FindingText:
    """Say what the checkpoint covered."""
    return FindingText(
        f"a checkpoint that covers {n(g.numbers['covered'])} tokens could not be restored: {n(g.tokens)} tokens recomputed over {times(g.count)}",
        _WHY,
        _remedies(g.session),
        [
            RuledOut("swa-threshold-misfire", "the comparison let it pass; restoring it failed"),
            RuledOut("no-usable-checkpoint", "one was found"),
        ],
        _SEE,
    )


def alone(session: Session) -> list[SessionFinding]:
    """Say it of the line alone: the process that ended, in an input that does not show for which request."""
    failed = stated(session, "checkpoint_failed")
    if failed is None:
        return []
    words = FindingText(
        "a checkpoint could not be restored, and the server process ended", _WHY, _remedies(session), references=_SEE
    )
    return [SessionFinding(words, "", [(failed.mark, "the restore that failed")], "error")]


RULE = RequestRule(
    "CD213",
    "checkpoint-restore-failed",
    "A checkpoint that fitted could not be restored",
    decide,
    prove,
    say,
    severity="error",
    on=("checkpoint_failed",),
    alone=alone,
)
