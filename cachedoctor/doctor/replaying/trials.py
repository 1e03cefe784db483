"""Whether another setting helps: what two replays of one traffic reuse, conversation by conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.replays import Hope

SIMILARITIES = (0.05, 0.1, 0.25, 0.5, 0.8)
"""Values of --slot-prompt-similarity that are tried."""
SAME = 16
"""Tokens by which replay and server differ at the end of a prefix, and conversations that share a template."""


class Trial(NamedTuple):
    """One setting against another."""

    saved: int
    """Additional tokens that all conversations together reuse."""
    worst: int
    """Tokens by which reuse drops in the conversation that loses most; 0 if only ends of prefixes are lost."""


def hope(conversations: Sequence[int | None], before: Sequence[Served], most: Sequence[int]) -> Hope:
    """What a replay may miss of ``most`` and still reuse anything, with no conversation that is worse off."""
    free, turns = Counter[int | None](), Counter(conversations)
    for conversation, old, tokens in zip(conversations, before, most, strict=True):
        free[conversation] += tokens - old.reused
    return Hope(most, conversations, sum(most), {one: left + SAME * turns[one] for one, left in free.items()})


def compare(conversations: Sequence[int | None], before: Sequence[Served], after: Sequence[Served]) -> Trial:
    """Compare two replays; the lists are parallel, with one entry per request."""
    gains: Counter[int | None] = Counter()
    turns = Counter(conversations)
    for conversation, old, new in zip(conversations, before, after, strict=True):
        if new.reused != old.reused:
            gains[conversation] += new.reused - old.reused
    worse = [-gain for conversation, gain in gains.items() if gain < -SAME * turns[conversation]]
    return Trial(sum(gains.values()), max(worse, default=0))
