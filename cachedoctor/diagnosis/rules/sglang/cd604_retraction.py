"""CD604: SGLang put running requests back into the queue because the KV pool was full."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import FindingText, SessionFinding, SessionRule, said_by, times
from cachedoctor.diagnosis.rules.sglang.batch_periods import every, marks
from cachedoctor.model import Remedy, Session, as_typed

RARE = 0.01
"""Share of the requests: the server admits more than it has room for if all answers were long, and bets on short ones. A
bet that is lost now and then costs less than the caution that would avoid it."""

_WHY = (
    "The server admits requests before it knows how long their answers become. Where the pool is full, the last ones lose their "
    "memory and wait again; what they had computed of the answer is not put into the cache, and is computed again."
)


def inspect(session: Session) -> list[SessionFinding]:
    """Count what was retracted."""
    found = [p for p in every(session) if p.retracted]
    if not found:
        return []
    retracted, admitted = sum(p.retracted for p in found), sum(p.seqs for p in every(session))
    worst = max(found, key=lambda p: p.retracted)
    often = admitted == 0 or retracted > RARE * admitted
    evidence = marks(worst, ("retracted", "requests lose their memory"), ("usage", "the fullest line"))
    return [
        SessionFinding(
            FindingText(
                f"the KV pool was full: {times(retracted)} retracted, of {f'{admitted:,}' if admitted else 'an unknown number'} that were admitted",
                _WHY,
                [
                    Remedy(
                        "Let the server expect longer answers (1 is the default; what is higher admits fewer requests at once).",
                        options=as_typed("--schedule-conservativeness 1.3"),
                    ),
                    Remedy(
                        "Or fewer requests at once (a smaller --max-running-requests), or a larger pool (a higher --mem-fraction-static)."
                    ),
                ],
                references=["https://docs.sglang.io/advanced_features/hyperparameter_tuning.html"],
            ),
            "",
            [*evidence, *said_by(session.settings.get("kv_tokens"), "the size of the pool")],
            "warning" if often else "note",
        )
    ]


RULE = SessionRule(
    "CD604",
    "retraction",
    "SGLang put running requests back because the KV pool was full",
    severity="warning",
    inspect=inspect,
    engine="sglang",
)
