"""What a change by the client costs, for the rules of the CD1xx family. Knows situations; knows no cause."""

from __future__ import annotations

from cachedoctor.rules.base import MIN_LOST, Situation

MOST = 0.25
"""Share of the reference: a change of this size is charged with all that was lost behind it, a smaller one with itself."""


def cost_of_change(s: Situation) -> int:
    """Tokens that an unchanged history would have saved."""
    large = s.client_lost >= MOST * (s.request.reference_tokens or 0)
    return s.lost if large or s.server_lost < MIN_LOST else s.client_lost
