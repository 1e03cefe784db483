"""Where a llama-server creates context checkpoints while it computes a prompt, and which it drops. Pure functions.

Source: PR #15293 (one after every prompt), #16382 (64 tokens before the end), #20288 (near the end, and every 8192
tokens), #22929 (user messages), and the slot logic up to b11549. Assumes that no other slot shares a batch.
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.llamacpp.window import Run
from cachedoctor.knowledge.decision import LEAST


class Checkpoint(NamedTuple):
    """A saved state."""

    first: int
    """Smallest position of it."""
    last: int
    tokens: int
    """Tokens of the prompt that it covers."""
    task: int
    """Request that made it."""
    runs: tuple[Run, ...] = ()
    """Cells of sliding-window memory that it has saved."""


def batch_end(
    at: int, length: int, user_starts: tuple[int, ...], settings: ServerSettings, saved: list[Checkpoint]
) -> int:
    """End of a batch that begins ``at``: by its size, and by the next checkpoint."""
    cuts = _cuts(length, user_starts, settings, saved)
    return min([length, at + settings.batch, *(cut for cut in cuts if cut > at)])


def _cuts(length: int, user_starts: tuple[int, ...], settings: ServerSettings, saved: list[Checkpoint]) -> list[int]:
    build = settings.build
    if build < 8156:
        return [length - LEAST]
    if build < 8352:
        return [length - min(settings.batch, settings.ubatch)]
    ends = [length - 4 - settings.ubatch, length - 4]
    if build < 9538:
        return ends
    if build < 9873:
        return [*user_starts[-1:], *ends]
    if build < 10068:
        return [*user_starts, *ends]
    step = settings.checkpoint_min_step or 0
    far = saved[-1].tokens + step if saved else 0
    return [*(start for start in user_starts[:-1] if start > far), *user_starts[-1:], *ends]


def due(at: int, length: int, user_starts: tuple[int, ...], settings: ServerSettings, saved: list[Checkpoint]) -> bool:
    """Whether a server saves the state before a batch that begins ``at``; only for b6751 and newer."""
    build, step = settings.build, settings.checkpoint_min_step or 0
    last = saved[-1].tokens if saved else None
    near = at >= length - 4 - settings.ubatch
    if build < 9538:
        if at < LEAST + (1 if build < 8672 else 0) or (last is not None and at <= last + LEAST):
            return False
        if build >= 8352:
            return near or (step > 0 and at - (last or 0) >= step)
        return at >= length - (LEAST if build < 8156 else min(settings.batch, settings.ubatch))
    user = user_starts[-1] if user_starts else None
    far = last is None or at > last + step
    if at < 1:
        return False
    if build < 9873:
        return far and (near if user is None else at == user or (near and at > user))
    if not (near or at in user_starts):
        return False
    return far or at == user or (build >= 10068 and near)


def added(saved: list[Checkpoint], new: Checkpoint, settings: ServerSettings) -> list[Checkpoint]:
    """Return the list with a new checkpoint: a full list drops the oldest, newer builds those too close to others."""
    build, limit, step = settings.build, settings.ctx_checkpoints or 0, settings.checkpoint_min_step or 0
    kept = list(saved)
    if build >= 11063:
        kept = [one for one in kept if one.tokens != new.tokens]
    if build >= 10068 and (build < 11063 or len(kept) >= limit - 1):
        kept = _thinned(kept, new.task, step)
    while len(kept) >= limit and kept:
        del kept[0]
    return [*kept, new]


def _thinned(saved: list[Checkpoint], task: int, step: int) -> list[Checkpoint]:
    """Leave out those of other requests that lie closer than the least distance to the one before them."""
    kept: list[Checkpoint] = []
    for one in saved:
        if kept and one.task != task and one.tokens - kept[-1].tokens < step:
            continue
        kept.append(one)
    return kept
