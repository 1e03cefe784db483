"""What a slot, RAM entry or slot file holds, chunks reusable with --cache-reuse, and the replay's answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from cachedoctor.diagnosis.replay.llamacpp.context_checkpoints import Checkpoint
from cachedoctor.diagnosis.replay.llamacpp.window import FRESH, Cells
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.knowledge.decision import Decision


class ReplayContent(msgspec.Struct, frozen=True, gc=False):
    """Tokens with the memory of them. Immutable: slots and caches exchange it."""

    text: int
    """In the tree; -1 where there is none."""
    tokens: int
    """Length."""
    cells: Cells
    """Of sliding-window memory."""
    saved: tuple[Checkpoint, ...]
    """The oldest first."""
    owner: int
    """Request whose content it is; -1 before the first."""
    place: int
    """Of the text in the order of the tree; -1 where there is none."""


EMPTY = ReplayContent(-1, 0, FRESH, (), -1, -1)


@lru_cache(maxsize=1)  # one traffic is replayed under many settings
def contents(traffic: Traffic) -> list[tuple[ReplayContent, ReplayContent]]:
    """What a slot that can go back anywhere holds when a prompt is computed, and when its request has ended."""
    length, places, found = traffic.tree.length, traffic.tree.places, []
    for index, one in enumerate(traffic.asked):
        prompt, content = one.prompt, one.content
        begun = ReplayContent(prompt, length(prompt), FRESH, (), index, places[prompt])
        found.append((begun, ReplayContent(content, length(content), FRESH, (), index, places[content])))
    return found


def moved(old: Sequence[int], new: Sequence[int], common: int, least: int) -> int:
    """Tokens of a prompt that are there when every piece of ``least`` tokens or more was moved to its place.

    ``common``: length of the prefix that both share. Each piece has to continue where the one before it ended, and
    no token of the slot is checked twice.
    """
    at, place = common, common
    while at < len(new) and place < len(old):
        if old[place] != new[at]:
            place += 1
            continue
        size = _equal(old, new, place, at)
        if size >= least:
            at += size
            place += size
        else:
            place += 1
    return at


def _equal(old: Sequence[int], new: Sequence[int], place: int, at: int) -> int:
    size, most = 0, min(len(old) - place, len(new) - at)
    while size < most and old[place + size] == new[at + size]:
        size += 1
    return size


ChosenBy = Literal["id", "similarity", "lru", "none"]

Cause = Literal[
    "",  # nothing is missing
    "by request",  # "cache_prompt": false
    "together",  # the request that it shares most with was still being computed
    "busy",  # the slot that held it was at work
    "other slot",  # it lay in a slot, and another one was chosen
    "slot taken",  # another prompt took the slot, and nothing was saved
    "RAM cache off",  # the same, and there is no RAM cache
    "refused",  # the RAM cache has it, but did not give it back; or would not take it, too big for the limit
    "too small",  # evicted of the RAM cache
    "consumed",  # another prompt took the entry
    "purged",  # the memory of all slots was full
    "restart",
    "erased",  # by the client, or replaced by a slot file
    "checkpoint",  # the memory can only go back to a checkpoint, and none was as late
    "window",  # the same, of a sliding window
    "shifted",  # the context was shifted, or the request cancelled: it was never kept
]
"""Why not all of the best common prefix with anything ever sent came back."""


class Served(msgspec.Struct, frozen=True, gc=False):
    """What the server did with one request."""

    reused: int
    """Tokens."""
    slot: int
    """-1 where it never got one."""
    chosen_by: ChosenBy
    from_ram: bool
    """Its slot was filled from the RAM cache."""
    common: int
    """Longest common prefix with what the slot held when processing began."""
    best: int
    """Longest common prefix with anything sent before, less the last token of the prompt."""
    cause: Cause = ""
    decision: Decision | None = None
    """How going back was decided; None where the cache was not asked, or the memory can go back anywhere."""
