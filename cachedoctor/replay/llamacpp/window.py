"""How far back the memory of a sliding window reaches. Pure arithmetic over positions."""

from __future__ import annotations

from cachedoctor.replay.llamacpp.server_settings import Settings

WINDOW_ONLY = 9538
"""From here on a saved state holds the window alone, before it all cells (sizes of checkpoints in real logs)."""


def cells(settings: Settings) -> int:
    """Cells that a slot's sliding-window memory has: the window and one batch, rounded up."""
    pad = 32 if settings.build < 7079 else 256
    windows = settings.window * (settings.slots or 1 if settings.kv_unified else 1)
    return -(-(windows + settings.ubatch) // pad) * pad


def oldest(settings: Settings, before: int, tokens: int, room: int) -> int:
    """Smallest position that is left when the memory, which began at ``before``, holds ``tokens``."""
    if settings.kind == "attention":
        return 0
    return max(before, tokens - room) if settings.kind == "swa" else tokens - 1


def saved(settings: Settings, before: int, tokens: int) -> int:
    """Smallest position of a state that was saved and is taken back."""
    if settings.kind != "swa" or settings.build < WINDOW_ONLY:
        return before
    return max(before, tokens - settings.window)
