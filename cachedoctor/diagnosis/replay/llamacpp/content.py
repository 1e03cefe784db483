"""The content of a slot, RAM entry or slot file, chunks that --cache-reuse can move, and the result of a replay."""

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
    """Tokens and their memory. Immutable: slots and caches exchange it."""

    text: int
    """Index in the tree; -1 if there is none."""
    tokens: int
    """Length of the text."""
    cells: Cells
    """Cells of sliding-window memory."""
    saved: tuple[Checkpoint, ...]
    """Checkpoints, the oldest first."""
    owner: int
    """Request whose content it is; -1 before the first."""
    place: int
    """Index of the text in tree order; -1 if there is none."""


EMPTY = ReplayContent(-1, 0, FRESH, (), -1, -1)


@lru_cache(maxsize=1)  # one traffic is replayed under many settings
def contents(traffic: Traffic) -> list[tuple[ReplayContent, ReplayContent]]:
    """Return a slot's content when a prompt is computed, and after its request, for memory that goes back anywhere."""
    length, places, found = traffic.tree.length, traffic.tree.places, []
    for index, one in enumerate(traffic.asked):
        prompt, content = one.prompt, one.content
        begun = ReplayContent(prompt, length(prompt), FRESH, (), index, places[prompt])
        found.append((begun, ReplayContent(content, length(content), FRESH, (), index, places[content])))
    return found


def moved(old: Sequence[int], new: Sequence[int], common: int, least: int) -> int:
    """Tokens of a prompt that are available after every chunk of ``least`` tokens or more was moved to its place.

    ``common``: length of the common prefix. Each chunk has to continue where the previous one ended, and no token of
    the slot is checked twice.
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
"""Why the best common prefix with any earlier text was not fully reused."""


class Served(msgspec.Struct, frozen=True, gc=False):
    """The result of one request on the server."""

    reused: int
    """Reused tokens."""
    slot: int
    """Number of the slot; -1 if the request never got one."""
    chosen_by: ChosenBy
    from_ram: bool
    """Its slot was filled from the RAM cache."""
    common: int
    """Longest common prefix with what the slot held when processing began."""
    best: int
    """Longest common prefix with anything sent before, less the last token of the prompt."""
    cause: Cause = ""
    decision: Decision | None = None
    """How the rollback was decided; None if the cache was not used, or the memory can be rolled back anywhere."""
