"""What a log says of memory that had to go back to a common prefix and could not, for the rules of the CD2xx family.

Knows situations; knows no cause.
"""

from __future__ import annotations

from cachedoctor.knowledge.decision import EVERY
from cachedoctor.model import Dropped, RuledOut, Session
from cachedoctor.rules.base import MIN_LOST, Situation, n


def server_could_not(s: Situation) -> bool:
    """The common prefix was long, the server reused far less of it, and neither setting nor failure explains that."""
    r = s.request
    if not s.late or s.server_lost < MIN_LOST or s.rewinds_badly is not True or r.shifted:
        return False
    if s.fired & {"CD109", "CD111"} or r.truncate_failed_at is not None or (s.own_slot is False and not r.lcp_exact):
        return False
    return s.lcp is not None and 2 * (r.cached_tokens or 0) < s.lcp


def dropped(s: Situation) -> Dropped | None:
    """Return the checkpoint whose loss cost tokens: it lay inside a long common prefix and had left the list before."""
    r, lost = s.request, s.request.dropped
    if lost is None or not s.late or s.rewinds_badly is not True or r.shifted or r.truncate_failed_at is not None:
        return None
    if s.fired & {"CD109", "CD111"} or lost.tokens - (r.cached_tokens or 0) < MIN_LOST:
        return None
    return lost


def too_dense(s: Situation, lost: Dropped) -> bool:
    """Dropped by a minimum distance that the whole prompt does not reach, though the list had room.

    Builds from b10068 on drop what lies too close to an earlier checkpoint; b11063 and newer only from a list that is
    nearly full (PR #28302).
    """
    short = (s.request.prompt_tokens or 0) <= min_step(s.session)
    thins_always = s.session.at_least(11063) is False or (s.session.at_least(11063) is None and lost.roomy)
    return lost.crowded and short and thins_always


def min_step(session: Session) -> int:
    """Least distance of two checkpoints in tokens: as printed, or the default from b9873 on."""
    step = session.setting("checkpoint_min_step")
    return EVERY if step is None else int(step)


def same_prefix(lcp: int | None) -> RuledOut:
    """The look-alike that a long common prefix excludes."""
    return RuledOut("prefix-diverges-early", f"{n(lcp)} tokens of the prefix are the same")
