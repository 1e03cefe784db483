"""Separates conversations that share a head, and finds prompts that are not a turn of any conversation."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise

import msgspec

from cachedoctor.knowledge.decision import FRAME, extends
from cachedoctor.model import Request

KEPT = 64
"""Tokens: a request that lacks no more than this of the slot's content continues it."""
RETURNS = 2
"""Turns that must continue another conversation than the slot held, at least one without another explanation."""
_SAME_PLACE = 24
"""Tokens: common prefixes that differ by no more end at the same place: the first words of two chats may be alike."""


class InterleavedTurn(msgspec.Struct, gc=False):
    """A request of an assumed conversation, and the length of the slot's content after it."""

    request: Request
    total: int
    """Tokens in the slot when it ended."""


class TurnReading(msgspec.Struct):
    """Turns that are read as several conversations."""

    parties: list[list[InterleavedTurn]]
    returns: int
    """Turns that continued another conversation than the slot held."""
    sure: int
    """Of these, the ones that the slot's content could not have grown into."""
    longest: int = 0
    """Of them, the ones longer than everything that earlier turns left."""

    @property
    def holds(self) -> bool:
        """Whether the lengths exclude other readings.

        If no prompt is longer than all earlier ones, one client may have dropped old text, and any prompt of about the
        same length seems to continue some other prompt.
        """
        certain = self.returns >= RETURNS and self.sure >= 1
        return certain and (self.longest >= 1 or self.returns >= len(self.parties))


def part_apart(first: list[InterleavedTurn], second: list[InterleavedTurn]) -> bool:
    """Whether two turns diverge from their previous turns at different places: with one head it is one place."""
    one, other = _place(*first), _place(*second)
    return one is not None and other is not None and abs(one - other) > 2 * _SAME_PLACE


def _place(before: InterleavedTurn, turn: InterleavedTurn) -> int | None:
    """Where a turn parts from what the one before it left; None if it goes on, or no line shows it."""
    lcp = turn.request.common_prefix_tokens
    return None if lcp is None or lcp >= before.total - KEPT else lcp


def read(turns: list[InterleavedTurn]) -> TurnReading | None:
    """Read turns as several conversations with one head; None if they are not."""
    reading = TurnReading([[turns[0]]], 0, 0)
    last, head = reading.parties[0], None
    for turn in turns[1:]:
        prompt, lcp, held = turn.request.prompt_tokens, turn.request.common_prefix_tokens, last[-1].total
        if prompt is None or lcp is None or turn.request.restored_from_ram:
            return None
        if lcp >= held - KEPT:
            last.append(turn)
            continue
        head = lcp if head is None else head
        if abs(lcp - head) > _SAME_PLACE:
            return None
        homes = [p for p in reading.parties if p is not last and extends(prompt, p[-1].total)]
        if homes:
            reading.returns += 1
            reading.sure += not extends(prompt, held)
            reading.longest += all(prompt > party[-1].total for party in reading.parties)
            last = max(homes, key=lambda p: p[-1].total)
            last.append(turn)
        elif extends(prompt, held) and len(reading.parties) > 1:
            return None  # it grew, and changed after the head: nothing speaks for a third conversation
        else:
            last = [turn]
            reading.parties.append(last)
    return reading if len(reading.parties) > 1 else None


SAME_PLACE = 24
"""Tokens: common prefixes that differ by no more end at the same place."""
WINDOW = 16
"""Prompts that are compared."""
LEAST = 8
"""Prompts needed to see an order or none: in the first half, up to five alternating conversations have begun."""
GROWING = 0.6
"""Share of growing steps between prompts above which these are turns: conversations of three turns reach two thirds,
prompts in random order a half."""
ORDER = 0.25
"""Excess of pairs in which the later prompt could contain the earlier one (Kendall); conversations that alternate
on a slot have few growing steps, but every round is longer than the one before."""
SHORT = 0.25
"""Share of the largest prompt below which one is a side request between the turns of a conversation."""
TURNS_AGAIN = 0.8
"""Share of growing steps from which on prompts that seemed to be separate ones are turns after all."""


class OneShot(msgspec.Struct, gc=False):
    """A prompt that shared only its head with the slot's content."""

    index: int
    head: int | None
    """Tokens of the common prefix; None for the first prompt, which had nothing to share."""
    prompt: int
    total: int
    """Tokens of prompt and reply."""


class CommonHeads:
    """The prompts of a session that diverge after a common head."""

    def __init__(self) -> None:
        self._seen: deque[OneShot] = deque(maxlen=4 * WINDOW)
        self._separate: list[int] = []
        """Common prefixes after which separate prompts were seen."""

    def note(self, diverged: OneShot, *, roomy: bool = False) -> list[OneShot]:
        """Add a prompt; returns the prompts with its head if they are separate prompts, otherwise none.

        ``roomy``: the RAM cache has kept the content of every reused slot, so it would still contain the chat.
        """
        self._seen.append(diverged)
        if diverged.head is None:
            return []
        alike, known = self._alike(diverged.head), self.separate(diverged.head)
        alike = _without_forms(alike) if diverged.head <= FRAME and not roomy else alike
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
        """Whether prompts that diverge after this head are separate prompts."""
        return any(abs(head - known) <= SAME_PLACE for known in self._separate)

    def _alike(self, head: int) -> list[OneShot]:
        found = [p for p in self._seen if p.head is None or abs(p.head - head) <= SAME_PLACE]
        found = found[-WINDOW:]
        largest = max((p.prompt for p in found), default=0)
        return [p for p in found if p.prompt >= SHORT * largest]


def _without_forms(prompts: list[OneShot]) -> list[OneShot]:
    """The prompts without those of a form between the turns of one chat, if these are enough and go on: a program that
    sorts each sentence before a chat answers it, or has each answer judged. Forms have one length, or come every second
    or third time."""
    lengths = Counter(prompt.prompt for prompt in prompts)
    chats = [[prompt for prompt in prompts if lengths[prompt.prompt] < LEAST // 2]]
    chats += [prompts[first::period] for period in (2, 3) for first in range(period)]
    return next((chat for chat in chats if len(chat) >= LEAST // 2 and _goes_on(chat)), prompts)


def _goes_on(prompts: list[OneShot]) -> bool:
    """Whether each prompt can be the next turn of the one before it."""
    return all(extends(after.prompt, before.total) for before, after in pairwise(prompts))


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
