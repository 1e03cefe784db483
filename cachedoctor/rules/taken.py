"""What a log says of a conversation whose slot another one had taken, for the rules of the CD3xx family.

Knows situations; knows no cause.
"""

from __future__ import annotations

from cachedoctor.model import RuledOut
from cachedoctor.rules.base import Situation

ALTERNATE = RuledOut("prefix-diverges-early", "the lengths alternate between conversations on this slot")
"""The look-alike that lengths in turn exclude."""


def other_held(s: Situation) -> bool:
    """The slot had been taken, and no change of the prompt explains the loss."""
    return s.slot_taken and s.request.t_last != -1 and not s.fired & {"CD101", "CD102", "CD108"}


SHORT = 0.25
"""Share of the conversation's length that a side request has at most."""


def side_request(s: Situation) -> bool:
    """What took the slot was short, and the first request of its own conversation: a title, a summary, tags."""
    thief = s.slot_before
    if thief is None or thief.prompt_tokens is None or thief.thread == s.request.thread or thief.thread_turn:
        return False
    return thief.prompt_tokens <= SHORT * (s.request.reference_tokens or 0)
