"""Numbers that no line prints, from those that lines do print: each with its lower and upper bound.

Pure: numbers in, numbers out. ``Checking checkpoint with [26880, 26880] against 24350`` and ``f_keep = 0.902``: 24,350
or 24,351 tokens are common, so the slot held 26,981 to 27,013. Excerpts lack the lines that print such numbers, and
builds from b9538 on print no common prefix at all.
"""

from __future__ import annotations

import math

from cachedoctor.knowledge import decision
from cachedoctor.model import Between, Facts
from cachedoctor.model.observed import Observed, Progressed

HALF = 0.0005
"""Shares are printed with three decimals."""


def by_threshold(seen: Observed, facts: Facts, prompt: int | None) -> Between | None:
    """Bounds of the common prefix by the threshold that checkpoints were checked against.

    A window that is not known adds to it: then only the lower bound is. A threshold of 0 stands for every prefix inside
    the window.
    """
    check = next(iter(seen.checks))
    recurrent = check.pos_min == check.pos_max or facts.memory in ("hybrid", "recurrent")
    window = 0 if recurrent else _window(facts)
    if window is None:
        return (check.threshold, None) if check.threshold > 0 else None
    if check.threshold <= 0:
        return (0, window + 1) if window else None
    asked = decision.representatives(facts.build, facts.build_min, facts.build_max)
    lengths = [prompt] if prompt is not None else [check.threshold, 1 << 60]  # nothing new in the prompt, or something
    found = {decision.common_of(check.threshold, window, build, length) for build in asked for length in lengths}
    exact = [common for common in found if common is not None]
    return min(exact), max(exact)


def by_refusals(seen: Observed, f_keep: float | None) -> tuple[int, int] | None:
    """Bounds of the common prefix where no line prints the window: from ``f_keep``, and from refused checkpoints.

    One that begins before the threshold was refused for its end alone, as builds from b9713 on do: it lies beyond the
    prefix. None where the two leave more than a tenth of it open, or contradict each other.
    """
    if not seen.forced or seen.restore_failed is not None or f_keep is None or not seen.reach:
        return None
    ends = [c.pos_max for c in seen.checks if c.pos_min < min(c.threshold, c.pos_max)]
    low = max(math.ceil((f_keep - HALF) * seen.reach), *(check.threshold for check in seen.checks))
    high = min(ends, default=0) - 1
    return (low, high) if low <= high <= 1.1 * low else None


def _window(facts: Facts) -> int | None:
    """Sliding window in tokens, by the lines of requests or of the start."""
    found: int | None = facts.window if facts.window is not None else facts.setting("n_swa")
    return found


def narrowed(first: Between | None, second: Between | None) -> Between | None:
    """What both leave possible; the first alone where they contradict each other."""
    if first is None or second is None:
        return second if first is None else first
    low = max(first[0], second[0])
    high = second[1] if first[1] is None else first[1] if second[1] is None else min(first[1], second[1])
    return (low, high) if high is None or low <= high else first


def of_share(part: Between, share: float | None) -> Between | None:
    """Bounds of a whole of which a part is known, and its share, rounded to three decimals."""
    if share is None or share <= HALF:
        return None
    high = None if part[1] is None else int(part[1] / (share - HALF))
    return max(part[0], math.ceil(part[0] / (share + HALF))), high


def of_prompt(length: int | None, similarity: float | None) -> tuple[int, int] | None:
    """Bounds of what a slot shares with a prompt of known length, by that share."""
    if not length or similarity is None:
        return None
    return max(0, math.ceil((similarity - HALF) * length)), math.floor((similarity + HALF) * length)


def prompt(seen: Observed, prefix: Between | None, similarity: float | None, cached: int | None) -> Between | None:
    """Bounds of the prompt's length, where no line prints it: from what it shares, its progress, what was computed."""
    shared = None if prefix is None else of_share(prefix, similarity) or (prefix[0], None)
    said = seen.progress
    found = shared if said is None else narrowed(_by_progress(said, cached), shared)
    computed = None if not seen.processed_tokens or seen.parent is not None else (seen.processed_tokens, None)
    return narrowed(computed, found)


def _by_progress(said: Progressed, cached: int | None) -> Between:
    """Shares are printed with six decimals, from b9294 on with two."""
    if said.counts == "computed":
        return math.floor(said.tokens / (said.share + 0.005)), None
    low, high = math.floor(said.tokens / (said.share + 5e-7)), math.ceil(said.tokens / max(said.share - 5e-7, 1e-7))
    return (low if said.counts == "all" or cached == 0 else said.tokens), high


def held(seen: Observed, prefix: Between | None, f_keep: float | None) -> Between | None:
    """Bounds of what the slot held, where no line prints it; ``prefix``: what the prompt has in common with it."""
    reach = (seen.reach, None) if seen.reach else None
    return narrowed(None if prefix is None else of_share(prefix, f_keep), reach)
