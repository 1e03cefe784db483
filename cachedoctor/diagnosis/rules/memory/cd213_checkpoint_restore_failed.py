"""CD213: a checkpoint that fitted could not be restored."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import server_options

_SERVER = (b"failed to restore context checkpoint", b"failed to restore SWA checkpoint", b"checkpoint size mismatch")
"""Words of the server's own lines; libllama's lines only mention a saved state, and forks use other words."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the message, or on libllama's own between a check and the forcing."""
    r = s.request
    covered, mark = r.seen.restore_failed, r.marks.get("checkpoint_failed")
    if covered is None or mark is None:
        return None
    most = covered if s.lcp is None else min(covered, s.lcp)
    sure: kit.Confidence = "high" if any(words in mark.text for words in _SERVER) else "medium"
    if sure == "medium" and r.cached_tokens:
        return None  # what was restored instead is reused
    return kit.Match(max(0, most - (r.cached_tokens or 0)), sure, found=covered)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the message."""
    mark = s.request.marks["checkpoint_failed"]
    shown = kit.marked(
        s.request,
        ("n_past", "common prefix"),
        ("forced", "the whole prompt is computed"),
        kit.REUSED,
        kit.RECOMPUTED,
    )
    related = [line for line in shown if line[0].line != mark.line][:3]
    return kit.Proof((mark, "the restore that failed"), related, {"covered": match.found})


_WHY = (
    "The server accepted the checkpoint, but could not load its state: no free cells, a different size, or a corrupt state. "
    "Up to b9093 the server then computes the whole prompt; from b9294 on the server process ends."
)
_SEE = ["https://github.com/ggml-org/llama.cpp/pull/15293"]


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    shared = (
        [
            advice.option(
                session,
                server_options.KV_UNIFIED,
                "",
                "The slots share the KV cache, and another slot may hold the cells that this slot needs: give each slot its own share.",
                off=True,
            )
        ]
        if session.setting("kv_unified") is True
        else []
    )
    return [
        *shared,
        kit.Remedy(
            f"Update {session.program or 'llama.cpp'}, and if a restore fails again, report the failure with the size in the log line."
        ),
        kit.Remedy(
            "Try without a draft model and without a quantised KV cache: both change how states are saved and restored."
        ),
    ]


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what the checkpoint covered."""
    return kit.FindingText(
        f"a checkpoint that covers {kit.n(g.numbers['covered'])} tokens could not be restored: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        _WHY,
        _remedies(g.session),
        [
            kit.RuledOut("swa-threshold-misfire", "the server accepted the checkpoint, but could not restore it"),
            kit.RuledOut("no-usable-checkpoint", "a usable checkpoint was found"),
        ],
        _SEE,
    )


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the line alone: the process ended, and the input does not show for which request."""
    failed = kit.stated(session, "checkpoint_failed")
    if failed is None:
        return []
    words = kit.FindingText(
        "a checkpoint could not be restored, and the server process ended", _WHY, _remedies(session), references=_SEE
    )
    return [kit.SessionFinding(words, "", [(failed.mark, "the restore that failed")], "error")]


RULE = kit.rule(
    __name__,
    "A suitable checkpoint could not be restored",
    decide,
    prove,
    say,
    severity="error",
    on=("checkpoint_failed",),
    alone=alone,
    stated=("checkpoint_failed",),
)
