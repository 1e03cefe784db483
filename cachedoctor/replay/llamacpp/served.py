"""What the replay says of one request."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.knowledge.decision import Decision

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
    "too small",  # pushed out of the RAM cache
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
