"""What a change by the client costs, and how the prompts prove it, for the rules of the CD1xx family."""

from __future__ import annotations

from cachedoctor.model import Confidence, First, RuledOut
from cachedoctor.rules.base import MIN_LOST, Match, Proof, RuleContext, marked, n

MOST = 0.25
"""Share of the reference: a change of this size is charged with all that was lost behind it, a smaller one with itself."""


def cost_of_change(s: RuleContext) -> int:
    """Tokens that an unchanged history would have saved."""
    large = s.client_lost >= MOST * (s.request.reference_tokens or 0)
    return s.lost if large or s.server_lost < MIN_LOST else s.client_lost


def from_prompts(s: RuleContext, first: First, tokens: int | None = None) -> Match:
    """Report a difference that the prompts given beside the log prove."""
    sure: Confidence = "high" if s.difference is not None and s.difference.exact else "medium"
    return Match(s.lost if tokens is None else tokens, sure, found=first)


def prompts_prove(s: RuleContext, match: Match) -> Proof:
    """Prove a difference by the prompts themselves."""
    r, first = s.request, match.found
    primary, *related = marked(
        r,
        ("cached", "tokens reused"),
        ("select", "the slot choice"),
        ("timing", "tokens recomputed"),
        ("start", "the request"),
    )
    exact = s.difference is not None and s.difference.exact
    # Without the model's tokenizer the place is known in the text, its token only about.
    at = first.token if exact else s.lcp if s.lcp is not None else f"~{n(first.token)}"
    numbers = {
        "field": first.field, "kind": first.kind, "lcp": at, "place": first.place,
        "reference": r.reference_tokens, "changed": r.lost_client,
    }  # fmt: skip
    return Proof(primary, related[:2], numbers, s.difference)


def texts_prove(s: RuleContext, **numbers: object) -> Proof:
    """Prove a difference by both texts that the server printed."""
    return Proof(
        marked(s.request, ("new", "the new prompt, the bar marks the first differing token"))[0],
        marked(s.request, ("old", "what the slot held"), ("n_past", "common prefix"), ("cached", "tokens reused")),
        {**numbers, "lcp": s.lcp},
    )


def seen_in_prompts(first_token: int | str) -> RuledOut:
    """The look-alike that is excluded once the prompts are known."""
    return RuledOut("slot-held-other-prompt", f"the two prompts themselves diverge at token {n(first_token)}")
