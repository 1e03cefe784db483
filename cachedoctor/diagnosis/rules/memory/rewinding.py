"""What a log says of memory that had to go back to a common prefix and could not, for the rules of the CD2xx family."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import MIN_LOST, RuleContext, n
from cachedoctor.knowledge.decision import EVERY
from cachedoctor.model import Dropped, Facts, RuledOut

CLEARED = ("CD109", "CD111", "CD213")
"""Codes of the causes that say why nothing was reused, whatever checkpoints there were: the server had no wish to, or
the one that it took could not be restored."""


def server_could_not(s: RuleContext) -> bool:
    """The common prefix was long, the server reused far less of it, and neither setting nor failure explains that."""
    r = s.request
    if not s.late or s.server_lost < MIN_LOST or s.setup.rewinds_badly is not True or r.shifted:
        return False
    if r.seen.truncate_failed_at is not None or (s.own_slot is False and not r.lcp_exact):
        return False
    return s.lcp is not None and 2 * (r.cached_tokens or 0) < s.lcp


def dropped(s: RuleContext) -> Dropped | None:
    """Return the checkpoint whose loss cost tokens: it lay inside a long common prefix and had left the list before."""
    r, lost = s.request, s.request.dropped
    if (
        lost is None
        or not s.late
        or s.setup.rewinds_badly is not True
        or r.shifted
        or r.seen.truncate_failed_at is not None
    ):
        return None
    return lost if lost.tokens - (r.cached_tokens or 0) >= MIN_LOST else None


def too_dense(s: RuleContext, lost: Dropped) -> bool:
    """Dropped by a minimum distance that the whole prompt does not reach, though the list had room.

    Builds from b10068 on drop what lies too close to an earlier checkpoint; b11063 and newer only from a list that is
    nearly full (PR #28302).
    """
    short = (s.request.prompt_tokens or 0) <= min_step(s.facts)
    thins_always = s.facts.at_least(11063) is False or (s.facts.at_least(11063) is None and lost.roomy)
    return lost.crowded and short and thins_always


def min_step(facts: Facts) -> int:
    """Least distance of two checkpoints in tokens: as printed, or the default from b9873 on."""
    step = facts.setting("checkpoint_min_step")
    return EVERY if step is None else int(step)


def same_prefix(lcp: int | None) -> RuledOut:
    """The look-alike that a long common prefix excludes."""
    return RuledOut("prefix-diverges-early", f"{n(lcp)} tokens of the prefix are the same")
