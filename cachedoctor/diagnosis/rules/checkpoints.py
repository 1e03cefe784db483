"""What a context checkpoint could have restored, and how a log shows memory that could not go back."""

from __future__ import annotations

from collections.abc import Iterable

from cachedoctor.diagnosis.rules.kit import MIN_LOST, RuleContext, n
from cachedoctor.knowledge.decision import EVERY
from cachedoctor.model import Check, Dropped, Facts, Remedy, RuledOut

APPEND_ONLY = Remedy("In the client: keep the history append-only; truncate the history rarely and in large pieces.")
"""What a client can do for memory that is rewound to checkpoints only."""

ENDS_INSIDE = 9539
"""First build that may pass over, on purpose, a checkpoint that ends beyond the common prefix (not yet b9538, b9713 does)."""


def serves(check: Check, lcp: int, s: RuleContext) -> bool | None:
    """Whether a checkpoint covers a common prefix of ``lcp`` tokens; None if the window is unknown.

    A recurrent state represents all tokens before it. Sliding-window memory can be truncated after a restore, so a
    checkpoint may end after the prefix (every build then reuses only the prefix). It has to begin at or before the
    window that precedes the prefix's end. Builds from b9713 on also require that it ends inside the prefix.
    """
    if check.pos_min == check.pos_max or s.facts.memory in ("hybrid", "recurrent"):
        return check.pos_max + 1 <= lcp
    if check.pos_max > lcp and s.facts.at_least(ENDS_INSIDE) is True:
        return False
    if check.pos_min == 0 or check.pos_min >= lcp:
        return check.pos_min < lcp
    window = s.setup.window
    return None if window is None else check.pos_min <= max(0, lcp - window)


def serving(checks: Iterable[Check], lcp: int, s: RuleContext) -> list[Check]:
    """Return the checkpoints that cover a common prefix of ``lcp`` tokens; none that begins after the prefix does."""
    return [check for check in checks if check.pos_min < lcp and serves(check, lcp, s)]


def held_whole(s: RuleContext) -> bool:
    """Whether the memory itself still reached back to position 0, if the prefix ends inside the window.

    Then the whole prefix was there, and no checkpoint was needed (b8672 and newer force a full computation anyway).
    """
    window, lcp = s.setup.window, s.lcp
    return (
        s.request.seen.oldest_position == 0
        and window is not None
        and window > 1
        and lcp is not None
        and 0 < lcp <= window
    )


CLEARED = ("CD109", "CD111", "CD213")
"""Codes of causes that explain why nothing was reused, whatever checkpoints existed: the cache was not to be used, or
the chosen checkpoint could not be restored."""


def server_could_not(s: RuleContext) -> bool:
    """Whether the common prefix was long, but the server reused far less without a setting or failure as the cause."""
    r = s.request
    if not s.late or s.server_lost < MIN_LOST or s.setup.rewinds_badly is not True or r.shifted:
        return False
    if r.seen.truncate_failed_at is not None or (s.own_slot is False and not r.lcp_exact):
        return False
    return s.lcp is not None and 2 * (r.cached_tokens or 0) < s.lcp


def dropped(s: RuleContext) -> Dropped | None:
    """Return the dropped checkpoint whose loss cost tokens: it was inside a long common prefix."""
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
    """Whether it was dropped by a minimum distance longer than the whole prompt, though the list was not full.

    Builds from b10068 on drop checkpoints too close to an earlier one; b11063 and newer only from a list that is nearly
    full (PR #28302).
    """
    short = (s.request.prompt_tokens or 0) <= min_step(s.facts)
    thins_always = s.facts.at_least(11063) is False or (s.facts.at_least(11063) is None and lost.roomy)
    return lost.crowded and short and thins_always


def min_step(facts: Facts) -> int:
    """Minimum distance of two checkpoints in tokens: as printed, or the default from b9873 on."""
    step = facts.setting("checkpoint_min_step")
    return EVERY if step is None else int(step)


def same_prefix(lcp: int | None) -> RuledOut:
    """The look-alike that a long common prefix excludes."""
    return RuledOut("prefix-diverges-early", f"{n(lcp)} tokens of the prefix are the same")
