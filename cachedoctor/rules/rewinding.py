"""What a log says of memory that had to go back to a common prefix and could not, for the rules of the CD2xx family.

Knows situations; knows no cause.
"""

from __future__ import annotations

from cachedoctor.model import RuledOut
from cachedoctor.rules.base import MIN_LOST, Situation, n


def server_could_not(s: Situation) -> bool:
    """The common prefix was long, the server reused far less of it, and neither setting nor failure explains that."""
    r = s.request
    if not s.late or s.server_lost < MIN_LOST or s.rewinds_badly is not True or r.shifted:
        return False
    if s.fired & {"CD109"} or r.truncate_failed_at is not None or (s.own_slot is False and not r.lcp_exact):
        return False
    return s.lcp is not None and 2 * (r.cached_tokens or 0) < s.lcp


def same_prefix(lcp: int | None) -> RuledOut:
    """The look-alike that a long common prefix excludes."""
    return RuledOut("prefix-diverges-early", f"{n(lcp)} tokens of the prefix are the same")
