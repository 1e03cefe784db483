"""CD904: nearly nothing is reused over many requests, and the log does not tell whose doing that is."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut, Session
from cachedoctor.rules import advice
from cachedoctor.rules.base import FindingText, SessionFinding, SessionRule, n

MANY = 6
"""Requests of which nothing is told: with fewer nothing is missed that a second look at the log would not show."""
SHARE = 0.25
"""Of all prompt tokens: less is not the main thing about this log."""
REUSED = 0.25
"""Share of the prompt tokens that is reused at most: a server whose cache works well has more."""


def inspect(session: Session) -> list[SessionFinding]:
    """Fire where a large part of all prompt tokens was computed and may have been computed before."""
    found = session.undecided
    if found is None or found.requests < MANY:
        return []
    if found.tokens < SHARE * found.prompt_tokens or found.cached_tokens > REUSED * found.prompt_tokens:
        return []
    words = FindingText(
        f"{n(found.cached_tokens)} of {n(found.prompt_tokens)} prompt tokens were reused, and this log does not tell why: "
        f"{n(found.tokens)} tokens over {found.requests:,} requests were new text, or computed before",
        "Lengths alone do not tell whose turn a prompt is. Prompts that have nothing in common are computed whole, and nothing "
        "is wrong with that. Conversations that take turns on too few slots look the same, and so does a client that changes the "
        "beginning of every prompt.",
        _deciding(session),
        [
            RuledOut("slot-contention", "not excluded: more conversations than slots, and no copy in RAM to come back"),
            RuledOut("prefix-diverges-early", "not excluded: the client changes the head of every prompt"),
            RuledOut(
                "one-shot prompts", "not excluded: prompts without a beginning in common; nothing is to mend then"
            ),
        ],
    )
    line = (found.worst, "of the request with the most of them")
    return [SessionFinding(words, "", [line], severity="note", confidence="low")]


def _deciding(session: Session) -> list[Remedy]:
    """Say what decides: the bodies, one conversation alone, and what this server may lack."""
    remedies = [
        Remedy(
            "The request bodies decide: they show which prompt goes on with which.",
            ["cachedoctor analyze server.log --requests bodies.jsonl"],
        ),
        Remedy(
            "Or let one conversation alone take three turns. If they are reused, the server had too little room for all of them; "
            "if they are not, the client changes its prompts."
        ),
    ]
    if session.setting("cache_ram_mib") == 0:
        remedies.append(advice.cache_ram(session))
    return remedies


RULE = SessionRule(
    "CD904",
    "reuse-undecided",
    "Nearly nothing is reused, and the log does not tell whose doing that is",
    inspect,
    unless=("CD901",),
)
