"""What a context checkpoint could have given back, for every rule that speaks of checkpoints."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import RuleContext
from cachedoctor.model import Check

ENDS_INSIDE = 9539
"""First build that may pass over, on purpose, a checkpoint that ends beyond the common prefix (not yet b9538, b9713 does)."""


def serves(check: Check, lcp: int, s: RuleContext) -> bool | None:
    """Whether a checkpoint holds what a common prefix of ``lcp`` tokens needs; None where the window is not known.

    A recurrent state stands for all tokens before it. Sliding-window memory can be cut once it is restored, so a
    checkpoint may end beyond the prefix (every build then reuses no more than the prefix): it has to begin where the
    window in front of the prefix's end does, or earlier. Builds from b9713 on ask for one that ends inside it.
    """
    if check.pos_min == check.pos_max or s.facts.memory in ("hybrid", "recurrent"):
        return check.pos_max + 1 <= lcp
    if check.pos_max > lcp and s.facts.at_least(ENDS_INSIDE) is True:
        return False
    if check.pos_min == 0 or check.pos_min >= lcp:
        return check.pos_min < lcp
    window = s.setup.window
    return None if window is None else check.pos_min <= max(0, lcp - window)


def held_whole(s: RuleContext) -> bool:
    """Whether the memory itself still reached back to position 0, where the prefix ends inside the window.

    Then the whole prefix was there, and no checkpoint was needed (b8672 and newer force all the same).
    """
    window, lcp = s.setup.window, s.lcp
    return (
        s.request.seen.oldest_position == 0
        and window is not None
        and window > 1
        and lcp is not None
        and 0 < lcp <= window
    )
