"""Which prompts are turns of one conversation, where slots are crowded and no line shows it: their lengths come round.

2,110 2,131 2,118 2,520 2,541 2,528 2,930 ...    three conversations in turn, each 410 tokens longer
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import NamedTuple

from cachedoctor.diagnosis.differential.votes import EXTENDS, ROUNDS

ENOUGH = 0.75
"""Share of the prompts that must have grown by the usual amount since their last turn."""
ALIKE = 32
"""Tokens by which growth per turn may differ: with more, any rising lengths would seem to alternate at some
distance."""


class SlotPrompt(NamedTuple):
    """One prompt of unknown beginning or not, as the log prints it."""

    length: int
    left: int
    """Tokens that the slot held when it was answered."""
    slot: int
    is_fresh: bool
    """Nothing but a template was reused of what the slot held."""


def turns(prompts: Sequence[SlotPrompt]) -> dict[int, int]:
    """For fresh prompts the one whose conversation each continues; empty where lengths do not come round.

    Only a prompt that another one overwrote in its slot is continued: the server would have found one that still
    lay there.
    """
    period = _period(prompts)
    if period < 2:
        return {}
    return {
        at: at - period
        for at in range(period, len(prompts))
        if prompts[at].is_fresh and _goes_on(prompts, at, period) and _is_overwritten(prompts, at, period)
    }


def _period(prompts: Sequence[SlotPrompt]) -> int:
    """After how many prompts the lengths come round, the shortest that explains most; 0 where they do not."""
    best, share = 0, 0.0
    for period in range(1, len(prompts) // ROUNDS + 1):
        growths = [prompts[at].length - prompts[at - period].left for at in range(period, len(prompts))]
        usual = median_low(growths)
        agree = sum(abs(growth - usual) <= ALIKE for growth in growths) / len(growths)
        if usual in EXTENDS and agree >= ENOUGH and agree > share:
            best, share = period, agree
    return best


def _goes_on(prompts: Sequence[SlotPrompt], at: int, period: int) -> bool:
    return prompts[at].length - prompts[at - period].left in EXTENDS


def _is_overwritten(prompts: Sequence[SlotPrompt], at: int, period: int) -> bool:
    slot = prompts[at - period].slot
    return any(one.slot == slot for one in prompts[at - period + 1 : at])
