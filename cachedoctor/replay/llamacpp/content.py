"""What a slot, an entry of the RAM cache or a slot file holds."""

from __future__ import annotations

import msgspec

from cachedoctor.replay.llamacpp.context_checkpoints import Checkpoint
from cachedoctor.replay.llamacpp.window import FRESH, Cells


class Content(msgspec.Struct, frozen=True, gc=False):
    """Tokens with the memory of them. Immutable: slots and caches exchange it."""

    text: int
    """In the tree; -1 where there is none."""
    tokens: int
    """Length, which may be less than that of the text."""
    cells: Cells
    """Of sliding-window memory."""
    saved: tuple[Checkpoint, ...]
    """The oldest first."""
    owner: int
    """Request whose content it is; -1 before the first."""


EMPTY = Content(-1, 0, FRESH, (), -1)
