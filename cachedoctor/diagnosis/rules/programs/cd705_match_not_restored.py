"""CD705: a program prints that more of a prompt was in its cache than it reused."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import own_settings

_WORTH = 8192
"""Tokens from which on it is a warning."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the numbers in the line: the common prefix and the reused tokens."""
    said = kit.stated(session, "not_restored")
    if said is None:
        alone = kit.stated(session, "match_alone")
        return [] if alone is None else [_alone(session, alone)]
    n, (why, remedy) = said.numbers, own_settings.back(session)
    worst = " in the worst request" if said.count > 1 else ""
    return [
        kit.finding(
            f"{kit.n(n['tokens'])} cached tokens recomputed in {kit.times(said.count)}: {kit.n(n['cached'])} of {kit.n(n['place'])} matching tokens reused{worst}",
            f"{why} The log shows: {said.field}." if said.field else why,
            [
                remedy,
                kit.Remedy(
                    "In the client: keep the history append-only, so the next prompt begins with everything that was stored."
                ),
            ],
            evidence=[(said.mark, "the common prefix")],
            severity="warning" if n["tokens"] >= _WORTH else "note",
        )
    ]


def _alone(session: kit.Session, said: kit.Incident) -> kit.SessionFinding:
    """Say it of an excerpt that does not show what was reused of the prompt in the end."""
    n, (why, remedy) = said.numbers, own_settings.back(session)
    of = f" of {kit.n(n['prompt'])}" if n["prompt"] else ""
    return kit.finding(
        f"{session.program} had {kit.n(n['place'])}{of} tokens of a prompt in its cache but could not continue from there{own_settings.reason(said)}; "
        "these lines do not show whether it reused a shorter part",
        why,
        [remedy],
        evidence=[(said.mark, "the common prefix")],
        severity="note",
        confidence="low",
    )


RULE = kit.session_rule(
    __name__,
    "The server reused less of a prompt than its cache contained",
    inspect,
    severity="warning",
    engine="vllm-mlx",
    on=("not_restored", "match_alone"),
    unless=("CD701",),
)
