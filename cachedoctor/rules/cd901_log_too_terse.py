"""CD901: something was lost, and the log cannot show why."""

from __future__ import annotations

from cachedoctor.model import Remedy
from cachedoctor.rules import advice
from cachedoctor.rules.base import MIN_LOST, Group, Hit, Rule, Situation, Words, n, proof, times


def check(s: Situation) -> Hit | None:
    """Fire when a loss is left that no rule could explain."""
    r = s.request
    left = s.server_lost if s.lcp is not None else s.lost
    explained = s.fired - {"CD104", "CD105"}  # these explain what the client changed, not what the server lost on top
    if not s.lost or explained or r.shifted or left < max(MIN_LOST, 0.05 * (r.reference_tokens or 0)):
        return None
    if s.lcp is not None and 2 * (r.cached_tokens or 0) >= s.lcp:
        return None  # an older checkpoint was used: the normal grain of such memory
    shown = proof(
        r,
        ("select", "the slot choice"),
        ("timing", "tokens recomputed"),
        ("release", "length at the end"),
        ("start", "the request"),
    )
    return Hit(
        left,
        "low",
        shown[0],
        shown[1:3],
        {"reference": r.reference_tokens, "cached": r.cached_tokens, "similarity": r.similarity, "f_keep": r.f_keep},
    )


def words(g: Group) -> Words:
    """Say which causes are left and what would tell."""
    r, session = g.worst_request, g.session
    restart = advice.restart(session, {"accounting", "text", "prompts"})
    return Words(
        f"{n(g.tokens)} tokens recomputed over {times(g.count)}, and this log cannot show why",
        "Left open: the client changed the prompt (prefix-diverges-early, history-rewritten), the memory could not go back (no-usable-checkpoint), "
        + ("caching was off (cache-prompt-off), " if (r.similarity or 0) > 0.5 else "")
        + ("the slot had been erased over the API, which prints nothing, " if r.selected_by == "lru" else "")
        + "or another conversation held the slot (slot-held-other-prompt).",
        [Remedy(f"To see more in the next log. {restart.text}", [restart.command] if restart.command else [])],
    )


RULE = Rule(
    "CD901",
    "log-too-terse",
    "Tokens were lost, and this log cannot show why",
    check,
    words,
    severity="note",
    after=tuple(f"CD{number}" for number in range(101, 500)),
)
