"""Distinguishes conversations that were taken for one: they share a head, take turns on a slot, and each continues.

The server gives a prompt the slot that is most similar to it, so two sessions with one system prompt meet in one slot
and overwrite each other behind that prompt (issue #22083). From lengths alone this looks like one conversation whose
history changes at the same place again and again. The lengths decide: a prompt that extends the last but one, and not
the last, belongs to the last but one.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Request

KEPT = 64
"""Tokens: a request that lacks no more than this of the slot's content continues it."""
MAX_TURN = 1024
"""Tokens that a turn may add to a short conversation; a long one may grow by half. More is taken for a new one."""
MIN_TURN = 16
"""Tokens that a turn adds at least: the end of the reply, a message, the opening of the next reply. Prompts of nearly
the same length are more likely requests that have nothing to do with each other."""
RETURNS = 2
"""Times that a prompt must extend an earlier one than the slot held, once with no other reading."""
_SAME_PLACE = 24
"""Tokens: common prefixes that differ by no more end at the same place: the first words of two chats may be alike."""


class Turn(msgspec.Struct):
    """A request of what is taken for one conversation, and what the slot held behind it."""

    request: Request
    total: int
    """Tokens in the slot when it ended."""


def extends(prompt: int, total: int) -> bool:
    """Whether a prompt of this length can be the next turn of a conversation of ``total`` tokens."""
    return shortest(prompt) <= total <= prompt - MIN_TURN


def shortest(prompt: int) -> float:
    """Tokens that a conversation must have at least for a prompt of this length to be its next turn."""
    return min(prompt - MAX_TURN, prompt / 1.5)


class TurnReading(msgspec.Struct):
    """Turns read as several conversations."""

    parties: list[list[Turn]]
    returns: int
    """Turns that went on with another conversation than the slot held."""
    sure: int
    """Of these, the ones that what the slot held could not have become."""

    @property
    def holds(self) -> bool:
        """The lengths leave no other reading."""
        return self.returns >= RETURNS and self.sure >= 1


def read(turns: list[Turn]) -> TurnReading | None:
    """Read turns as several conversations with one head; None when they are not."""
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
            last = max(homes, key=lambda p: p[-1].total)
            last.append(turn)
        elif extends(prompt, held) and len(reading.parties) > 1:
            return None  # it grew, and changed behind the head: nothing speaks for a third conversation
        else:
            last = [turn]
            reading.parties.append(last)
    return reading if len(reading.parties) > 1 else None
