"""CD905: an error line that no reader knows."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Quote it: what it means for the cache is not known."""
    said = kit.stated(session, "unknown_error")
    if said is None:
        return []
    lines = "1 error line is" if said.count == 1 else f"{kit.n(said.count)} error lines are"
    return [
        kit.finding(
            f"{lines} in words that cachedoctor does not know",
            "No rule reads it, so what it did to the cache is not known. A request that failed by it may look like one that is only cut off.",
            [
                kit.Remedy(
                    "Read the line: it may name the fault. If it is about the cache, report it with the lines around it.",
                    purpose="look",
                )
            ],
            evidence=[(said.mark, "the error")],
        )
    ]


RULE = kit.session_rule(__name__, "An error line is not understood", inspect, on=("unknown_error",))
