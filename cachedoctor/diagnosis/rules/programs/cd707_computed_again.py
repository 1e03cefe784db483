"""CD707: a program computed most of its prompts after the first, and its log does not show who caused it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import own_settings, shared_beginnings

_WORTH = 1000
"""Computed tokens from which on the log would seem to be fine without a finding."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if half or more of the tokens of later prompts were computed."""
    said = kit.stated(session, "computed")
    told = [a for answers in session.answers if answers.source == "log" for a in answers.each][1:]
    known = [
        (a.prompt_tokens, a.cached_tokens) for a in told if a.prompt_tokens is not None and a.cached_tokens is not None
    ]
    prompts, reused = sum(prompt for prompt, _ in known), sum(cached for _, cached in known)
    if said is None or prompts - reused < _WORTH or reused * 2 > prompts:
        return []
    return [
        kit.finding(
            f"after the first prompt, {kit.n(prompts - reused)} of {kit.n(prompts)} prompt tokens were not reused; the log cannot show why",
            "The number of computed tokens does not show whether the tokens were new. Prompts that have nothing in common are computed in full, which is fine. A "
            "client that changes the beginning of its prompts looks the same, and so does a cache that is off, too small or unable to save the model's memory.",
            [
                own_settings.compare(),
                *own_settings.room(session),
            ],
            ruled_out=[
                kit.RuledOut(
                    "one-shot-prompts", "not excluded: if the prompts have nothing in common, nothing is wrong"
                ),
                kit.RuledOut("prefix-diverges-early", "not excluded: the client may change the start of its prompts"),
            ],
            evidence=[(said.mark, "the request with the most computed tokens")],
            confidence="low",
            unless=(*shared_beginnings.CODES, "CD401", "CD701", "CD705", "CD706"),
        )
    ]


RULE = kit.session_rule(
    __name__,
    "The server reused little of its prompts, and its log cannot show why",
    inspect,
    engine="mlx-vlm",
    on=("computed",),
)
