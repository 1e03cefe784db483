"""CD901: something was lost, and the log cannot show why."""

from __future__ import annotations

from cachedoctor.model import Remedy
from cachedoctor.rules import advice
from cachedoctor.rules.base import (
    MIN_LOST,
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    marked,
    n,
    times,
)


def decide(s: RuleContext) -> Match | None:
    """Fire when a loss is left that no rule could explain."""
    r = s.request
    left = s.server_lost if s.lcp is not None else s.lost
    if not s.lost or r.shifted or left < max(MIN_LOST, 0.05 * (r.reference_tokens or 0)):
        return None
    if s.lcp is not None and 2 * (r.cached_tokens or 0) >= s.lcp:
        return None  # an older checkpoint was used: the normal grain of such memory
    return Match(left, "low")


def prove(s: RuleContext, _: Match) -> Proof:
    """Show the little that the log tells."""
    primary, *related = marked(
        s.request,
        ("select", "the slot choice"),
        ("timing", "tokens recomputed"),
        ("release", "length at the end"),
        ("start", "the request"),
    )
    return Proof(primary, related[:2])


def say(g: Group) -> FindingText:
    """Say which causes are left and what would tell."""
    r, session = g.worst_request, g.session
    restart = advice.restart(session, {"accounting", "text", "prompts"})
    return FindingText(
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}, and this log cannot show why",
        "Left open: the client changed the prompt (prefix-diverges-early, history-rewritten), the memory could not go back (no-usable-checkpoint), "
        + ("caching was off (cache-prompt-off), " if (r.similarity or 0) > 0.5 else "")
        + ("the slot had been erased over the API, which prints nothing, " if r.selected_by == "lru" else "")
        + "or another conversation held the slot (slot-held-other-prompt).",
        [Remedy(f"To see more in the next log. {restart.text}", [restart.command] if restart.command else [])],
    )


EXPLAINED = tuple(f"CD{number}" for number in range(101, 500) if number not in (104, 105))
"""Causes that explain a loss. CD104 and CD105 say what the client changed, not what the server lost on top."""


RULE = RequestRule(
    "CD901",
    "log-too-terse",
    "Tokens were lost, and this log cannot show why",
    decide,
    prove,
    say,
    severity="note",
    unless=EXPLAINED,
)
