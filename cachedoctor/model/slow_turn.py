"""A request that took long, and what its time went to."""

from __future__ import annotations

import msgspec

from cachedoctor.model.bounds import Count, LineNumber, Ms, SlotId, TaskId


class SlowTurn(msgspec.Struct):
    """Tokens and times of one request; None where the log does not say."""

    request: Count
    """Position in the array of requests."""
    session: Count
    path: str
    line: LineNumber
    """Its first line."""
    slot: SlotId
    task: TaskId
    prompt_ms: Ms
    reused_tokens: Count | None
    new_tokens: Count | None
    """Computed, and never sent before at this place."""
    again_tokens: Count | None
    """Computed, though they had been computed before at this place, or stood behind what the client changed."""
    undecided_tokens: Count | None
    """Computed, and the log does not tell whether they were new."""
    reply_tokens: Count | None
    reply_ms: Ms | None

    @property
    def ms(self) -> float:
        """Milliseconds of prompt and reply."""
        return self.prompt_ms + (self.reply_ms or 0.0)
