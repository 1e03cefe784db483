"""CD509: the log has no cache statistics, so that it says nothing about reuse."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import FindingText, SessionFinding, SessionRule
from cachedoctor.diagnosis.rules.vllm import rolling
from cachedoctor.model import Remedy, SamplePeriod, Session, as_typed, left_out


def inspect(session: Session) -> list[SessionFinding]:
    """Say it where a line switches them off, or where requests were answered and no statistics came."""
    if any(isinstance(p, SamplePeriod) for p in session.periods):
        return []
    several, disabled = session.settings.get("stats_off"), session.settings.get("stats_disabled")
    if several is not None:
        return [_several(session)]
    if disabled is not None:
        lines = rolling.said_by(disabled, "the argument")
        return [
            _note(
                "argument",
                "--disable-log-stats switches them off",
                lines,
                [Remedy("Leave --disable-log-stats out.", options=left_out("--disable-log-stats"), purpose="look")],
            )
        ]
    return []


_METRICS = Remedy(
    "Counters are there all the same: fetch them before and after some traffic.",
    [
        "curl -s http://localhost:8000/metrics > before.txt",
        "cachedoctor analyze vllm.log --metrics before.txt --metrics after.txt",
    ],
)
"""Not with --disable-log-stats: /metrics has no series of vLLM then (run on 0.32)."""


def _several(session: Session) -> SessionFinding:
    lines = rolling.said_by(session.settings["stats_off"], "statistics are switched off")
    lines += rolling.said_by(session.settings.get("data_parallel"), "several engines make several API servers")
    fix = Remedy(
        "One API server prints a line for every engine.",
        options=as_typed("--api-server-count 1"),
    )
    why = "more than one API server runs, and each would know only its own requests"
    return _note("several", why, lines, [fix, _METRICS])


def _note(key: str, why: str, lines: rolling.Shown, fixes: list[Remedy]) -> SessionFinding:
    return SessionFinding(
        FindingText(
            "no cache statistics in this log: it says nothing about reuse",
            f"The lines with the hit rate are missing because {why}. That is not a rate of 0.",
            fixes,
            [],
            ["https://github.com/vllm-project/vllm/pull/22227"] if key == "several" else [],
        ),
        key,
        lines,
    )


RULE = SessionRule(
    "CD509",
    "statistics-off",
    "The log has no cache statistics",
    severity="note",
    inspect=inspect,
    engine="vllm",
)
