"""CD604: SGLang put running requests back into the queue because the KV pool was full."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import every, marks

RARE = 0.01
"""Share of the requests: the server admits more than it has room for if all answers were long, and bets on short ones.
Occasional retractions cost less than the caution that would avoid them."""

_WHY = "The server admits requests before it knows how long their answers will be. When the pool is full, the last requests lose their memory and wait again; their partial answers are not cached and are recomputed."


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Count the retracted requests."""
    found = [p for p in every(session) if p.retracted]
    if not found:
        return []
    retracted, admitted = sum(p.retracted for p in found), sum(p.seqs for p in every(session))
    worst = max(found, key=lambda p: p.retracted)
    often = admitted == 0 or retracted > RARE * admitted
    evidence = marks(worst, ("retracted", "requests lose their memory"), ("usage", "the fullest line"))
    return [
        kit.finding(
            f"the KV pool was full: {kit.times(retracted)} retracted{f', {admitted:,} admitted' if admitted else ''}",
            _WHY,
            [
                kit.Remedy(
                    "Make the server expect longer answers. The default is 1; higher values admit fewer requests at once.",
                    options=kit.as_typed("--schedule-conservativeness 1.3"),
                ),
                kit.Remedy(
                    "Or run fewer requests at once (a smaller --max-running-requests), or use a larger pool (a higher --mem-fraction-static)."
                ),
            ],
            references=["https://docs.sglang.io/advanced_features/hyperparameter_tuning.html"],
            evidence=[*evidence, *kit.said_by(session.settings.get("kv_tokens"), "the size of the KV pool")],
            severity="warning" if often else "note",
        )
    ]


RULE = kit.session_rule(
    __name__, "SGLang retracted running requests because the KV pool was full", inspect, severity="warning"
)
