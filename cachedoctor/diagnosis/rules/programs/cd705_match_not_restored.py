"""CD705: a program prints that more of a prompt was in its cache than it reused."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import own_settings

_WORTH = 8192
"""Tokens from which on it is a warning."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it by the numbers of the line, the common beginning and what was reused."""
    said = kit.stated(session, "not_restored")
    if said is None:
        return []
    n, (why, remedy) = said.numbers, own_settings.back(session)
    worst = " in the worst of them" if said.count > 1 else ""
    return [
        kit.finding(
            f"{kit.n(n['tokens'])} cached tokens of {kit.times(said.count)} recomputed: {kit.n(n['cached'])} of {kit.n(n['place'])} in common reused{worst}",
            f"{why} Its log shows: {said.field}." if said.field else why,
            [
                remedy,
                kit.Remedy(
                    "A client that only appends is not affected: the next prompt then begins with everything that was stored."
                ),
            ],
            evidence=[(said.mark, "what was in common")],
            severity="warning" if n["tokens"] >= _WORTH else "note",
        )
    ]


RULE = kit.session_rule(
    __name__,
    "A program reused less of a prompt than its cache held",
    inspect,
    severity="warning",
    engine="vllm-mlx",
    on=("not_restored",),
)
