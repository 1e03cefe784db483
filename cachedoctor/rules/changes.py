"""What a change by the client costs, and how the prompts prove it, for the rules of the CD1xx family.

Knows situations; knows no cause.
"""

from __future__ import annotations

from cachedoctor.model import First, RuledOut
from cachedoctor.rules.base import MIN_LOST, Hit, Situation, n, proof

MOST = 0.25
"""Share of the reference: a change of this size is charged with all that was lost behind it, a smaller one with itself."""


def cost_of_change(s: Situation) -> int:
    """Tokens that an unchanged history would have saved."""
    large = s.client_lost >= MOST * (s.request.reference_tokens or 0)
    return s.lost if large or s.server_lost < MIN_LOST else s.client_lost


def from_prompts(s: Situation, first: First, tokens: int | None = None) -> Hit:
    """Report a difference that the prompts given beside the log prove."""
    r = s.request
    shown = proof(
        r,
        ("cached", "tokens reused"),
        ("select", "the slot choice"),
        ("timing", "tokens recomputed"),
        ("start", "the request"),
    )
    exact = r.difference is not None and r.difference.exact
    # Without the model's tokenizer the place is known in the text, its token only about.
    at = first.token if exact else s.lcp if s.lcp is not None else f"~{n(first.token)}"
    facts = {
        "field": first.field, "kind": first.kind, "lcp": at, "place": first.place, "a": first.a, "b": first.b,
        "reference": r.reference_tokens, "changed": r.lost_client, "end": at, "given": True,
    }  # fmt: skip
    return Hit(
        s.lost if tokens is None else tokens,
        "high" if exact else "medium",
        shown[0],
        shown[1:3],
        facts,
        difference=r.difference,
    )


def seen_in_prompts(first_token: int | str) -> RuledOut:
    """The look-alike that is excluded once the prompts are known."""
    return RuledOut("slot-held-other-prompt", f"the two prompts themselves part at token {n(first_token)}")
