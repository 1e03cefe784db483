"""Tells prompts of their own, which only begin alike, from the turns of a conversation.

Batch jobs, classifiers and questions about retrieved texts send the same instruction with another text each time.
From one request to the next this looks like a conversation whose head changed: a longer prompt that shares its
beginning with the one before. Over several requests the lengths decide: turns grow, separate prompts are longer and
shorter in no order.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import msgspec

from cachedoctor.engines.llamacpp.conversations.interleaved import extends

SAME_PLACE = 24
"""Tokens: common prefixes that differ by no more end at the same place."""
WINDOW = 16
"""Prompts that are compared."""
LEAST = 8
"""Prompts that it takes to see an order or none; up to five conversations in turn have begun by the first half."""
GROWING = 0.6
"""Share of steps from one prompt to the next that grow, above which these are turns: conversations of three turns reach
two thirds, prompts in random order a half."""
ORDER = 0.25
"""Excess of pairs in which the later prompt could contain the earlier one (Kendall); conversations that take turns
on a slot have few growing steps, but every round is longer than the one before."""
SHORT = 0.25
"""Share of the largest prompt below which one is a side request between the turns of a conversation."""
TURNS_AGAIN = 0.8
"""Share of growing steps from which on prompts that had been taken for separate ones are turns after all."""


class OneShot(msgspec.Struct):
    """A prompt that shared no more than its head with what the slot held."""

    index: int
    head: int | None
    """Tokens of the common prefix; None for the first prompt, which had nothing to share."""
    prompt: int
    total: int
    """Prompt + reply."""


class Heads:
    """The prompts of a session that part from each other behind a common head."""

    def __init__(self) -> None:
        self._seen: deque[OneShot] = deque(maxlen=4 * WINDOW)
        self._separate: list[int] = []
        """Heads behind which separate prompts were seen."""

    def note(self, diverged: OneShot) -> list[OneShot]:
        """Take a prompt; returns those of its head when they are separate prompts, else none."""
        self._seen.append(diverged)
        if diverged.head is None:
            return []
        alike, known = self._alike(diverged.head), self.separate(diverged.head)
        rises = _rises(alike)
        if known and len(alike) >= LEAST and rises >= TURNS_AGAIN:
            self._separate = [head for head in self._separate if abs(head - diverged.head) > SAME_PLACE]
            return []
        if not known:
            if len(alike) < LEAST or rises > GROWING or _order(alike) > ORDER or not _begins_late(alike):
                return []
            self._separate = [*self._separate[1 - WINDOW :], diverged.head]
        return alike

    def separate(self, head: int) -> bool:
        """Whether prompts that part behind this head are separate ones."""
        return any(abs(head - known) <= SAME_PLACE for known in self._separate)

    def _alike(self, head: int) -> list[OneShot]:
        found = [p for p in self._seen if p.head is None or abs(p.head - head) <= SAME_PLACE]
        found = found[-WINDOW:]
        largest = max((p.prompt for p in found), default=0)
        return [p for p in found if p.prompt >= SHORT * largest]


def _rises(prompts: list[OneShot]) -> float:
    """Share of steps in which a prompt could be the next turn of the one before it."""
    steps = [after.prompt >= before.total for before, after in pairwise(prompts)]
    return sum(steps) / len(steps) if steps else 1.0


def _order(prompts: list[OneShot]) -> float:
    """1 when every later prompt could contain every earlier one, -1 when none could."""
    pairs = [after.prompt >= before.total for at, before in enumerate(prompts) for after in prompts[at + 1 :]]
    return 2 * sum(pairs) / len(pairs) - 1 if pairs else 1.0


def _begins_late(prompts: list[OneShot]) -> bool:
    """Whether a prompt of the second half can be a turn of none of the earlier ones, each continued once."""
    ends: list[int] = []
    for at, prompt in enumerate(prompts):
        able = [end for end in ends if extends(prompt.prompt, end)]
        if able:
            ends.remove(max(able))
        elif 2 * at > len(prompts):
            return True
        ends.append(prompt.total)
    return False
