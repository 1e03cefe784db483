"""CD905: an error line that no reader knows."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Quote the line: its meaning for the cache is unknown."""
    said = kit.stated(session, "unknown_error")
    if said is None:
        return []
    lines = "1 error line is" if said.count == 1 else f"{kit.n(said.count)} error lines are"
    return [
        kit.finding(
            f"{lines} not known to cachedoctor",
            "No rule reads this error line, so its effect on the cache is unknown. A request that failed because of this error may look like a request with missing lines.",
            [
                kit.Remedy(
                    "Read the error line, which may name the problem. If the error concerns the cache, report the line with the lines around it.",
                    purpose="look",
                )
            ],
            evidence=[(said.mark, "the error")],
        )
    ]


RULE = kit.session_rule(
    __name__, "The log has an error line that cachedoctor does not know", inspect, on=("unknown_error",)
)
