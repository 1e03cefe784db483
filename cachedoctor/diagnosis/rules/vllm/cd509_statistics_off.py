"""CD509: the log has no cache statistics, so it shows nothing about reuse."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if a line switches statistics off, or if requests were answered and no statistics came."""
    if any(isinstance(p, kit.SamplePeriod) for p in session.periods):
        return []
    several, disabled = session.settings.get("stats_off"), session.settings.get("stats_disabled")
    if several is not None:
        return [_several(session)]
    if disabled is not None:
        lines = kit.said_by(disabled, "the argument")
        return [
            _note(
                "argument",
                "--disable-log-stats switches them off",
                lines,
                [
                    kit.Remedy(
                        "Remove --disable-log-stats.", options=kit.left_out("--disable-log-stats"), purpose="look"
                    )
                ],
            )
        ]
    return []


_METRICS = kit.Remedy(
    "Fetch /metrics before and after some traffic: its counters exist even without the statistics lines.",
    [
        "curl -s http://localhost:8000/metrics > before.txt",
        "cachedoctor analyze vllm.log --metrics before.txt --metrics after.txt",
    ],
)
"""Not with --disable-log-stats: /metrics then has no vLLM series (tested with 0.32)."""


def _several(session: kit.Session) -> kit.SessionFinding:
    lines = kit.said_by(session.settings["stats_off"], "statistics are switched off")
    lines += kit.said_by(session.settings.get("data_parallel"), "several engines start several API servers")
    fix = kit.Remedy(
        "Start one API server, which prints a line for every engine.",
        options=kit.as_typed("--api-server-count 1"),
    )
    why = "more than one API server runs, and each counts only its own requests"
    return _note("several", why, lines, [fix, _METRICS])


def _note(key: str, why: str, lines: rolling.Shown, fixes: list[kit.Remedy]) -> kit.SessionFinding:
    return kit.finding(
        "this log has no cache statistics: it shows nothing about reuse",
        f"The lines with the hit rate are missing because {why}. Missing lines do not mean a rate of 0.",
        fixes,
        references=["https://github.com/vllm-project/vllm/pull/22227"] if key == "several" else [],
        key=key,
        evidence=lines,
    )


RULE = kit.session_rule(__name__, "The log has no cache statistics", inspect)
