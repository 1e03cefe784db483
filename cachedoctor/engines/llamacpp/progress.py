"""How far a slot is with its task, from the lines that say it. An analysis needs none of them."""

from __future__ import annotations

import msgspec

from cachedoctor.engines.catalogue.base import Event

PROGRESS = frozenset({"progress", "progress_pp", "prompt_done", "tg_progress"})
"""Lines that say nothing but how far a task is."""
_BATCH = "seq_rm"
"""Printed for every batch of a prompt, with what the slot holds before it."""
_TOKENS = ("n_tokens", "n_past")
"""What the slot holds: its name over the builds."""
_GENERATED = ("n_decoded", "n_gen")


class Progress(msgspec.Struct):
    """How far one task is; what its lines do not say is None."""

    task: int
    tokens: int | None = None
    """Prompt tokens that are in the slot, reused or processed."""
    share: float | None = None
    """Share of the prompt that is done, as printed."""
    generated: int | None = None
    """Tokens of the reply so far; None while the prompt is processed."""


def advance(event: Event, before: Progress | None) -> Progress | None:
    """Say how far the slot is after ``event``; None when the event says nothing of it."""
    if event.message not in PROGRESS and event.message != _BATCH:
        return None
    now = before if before is not None and before.task == event.task else Progress(event.task)
    fields = event.fields
    if event.message == "tg_progress":
        now.generated = next((fields[name] for name in _GENERATED if name in fields), None)
        return now
    if event.message != "progress_pp":  # there the count is of processed tokens only
        now.tokens = next((fields[name] for name in _TOKENS if name in fields), now.tokens)
    if event.message == "prompt_done":
        now.generated = 0
    share = fields.get("progress")
    now.share = share if share is not None and 0 <= share <= 1 else None  # the line may say nan
    return now
