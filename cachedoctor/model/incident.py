"""Lines that state something by themselves, whatever request they belong to: ``purging slot 3 with 18422 tokens``."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Long
from cachedoctor.model.log_lines import Mark

IncidentName = Literal[
    "batch_failed",  # the model could not compute a batch, and its requests fail
    "batch_refused",  # the same, because its positions do not fit the memory
    "checkpoint_failed",  # a checkpoint could not be restored, and no search for one is under way
    "evicted",  # a prompt left the RAM prompt cache: size in MiB
    "no_room",  # a batch found no free cells and is tried again in smaller pieces
    "overflow",  # a prompt did not fit into the context: tokens, limit
    "header",  # the billing header of a client, with other values than where it stood before
    "oversize",  # a prompt is larger than the RAM prompt cache: size, limit in MiB
    "positions",  # a batch does not begin where the memory ends: stored, start
    "purged",  # an idle slot was emptied to make room: slot, tokens
    "ram_failed",  # a prompt of the RAM cache could not be restored: size in bytes
    "refused",  # the server refused a request for another reason
    "value",  # a date or an id that is another one in the second of two prompts: number of its line
    "state_failed",  # libllama could not load a saved state, of whatever kind
]  # fmt: skip


class Incident(msgspec.Struct):
    """The first such line of a server."""

    mark: Mark
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    """Its fields by name, and those of lines that belong to it."""
    before: Mark | None = None
    """The line that it is compared with."""
    field: str = ""
    """What differs between the two."""
    followed: bool = False
    """A request that stands in the log from its start to its end has ended since."""
    count: Long = 1
    """Such lines."""
