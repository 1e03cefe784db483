"""What the log lets us know of a slot: its content, its checkpoints, the choice that is under way.

Knows no log line.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model import Dropped, Mark, MarkName, Request

_MAX_RAM = 256
MAX_MIB = 1e9
"""MiB: a larger size is no size."""


class Choice(msgspec.Struct):
    """A slot choice and what happened up to the launch; the server prints ``task -1`` on these lines."""

    line: int
    selected_by: Literal["lcp", "lru", "id"] | None = None
    similarity: float | None = None
    f_keep: float | None = None
    t_last: int | None = None
    lcp: int | None = None
    """Exact common prefix from a ``checking sim`` line, tokens."""
    n_prompt: int | None = None
    """Prompt length from a ``checking sim`` line, tokens."""
    looked: bool = False
    saved: int | None = None
    """Length of the prompt saved to the RAM cache, tokens."""
    found_keep: float | None = None
    found_sim: float | None = None
    """Shares of the better prompt that was swapped in."""
    candidates: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(length, LCP) of the prompts in the RAM cache, where listed."""
    marks: dict[MarkName, Mark] = msgspec.field(default_factory=dict)


class Span(msgspec.Struct, gc=False):
    """What a finished request did to the content of its slot, in tokens."""

    start: int
    """First token that it computed."""
    end: int
    """Length of its prompt."""
    parted: int
    """Where it parted from what the slot held."""
    created: int
    """Checkpoints that it made."""
    mark: Mark
    """The line that says what it reused."""


class IdleSave(msgspec.Struct, gc=False):
    """An idle slot is being saved to the RAM cache, after which it is cleared."""

    mark: Mark
    gone_at: int | None
    """Evictions of the session after which this copy is gone for certain; None when unknown."""


class RamCache(msgspec.Struct):
    """The prompts that the RAM prompt cache is known to hold, by length."""

    saved: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Length in tokens -> line that saved it. Emptied when any prompt is thrown out: which one is not printed."""

    def save(self, length: int, mark: Mark) -> None:
        """A prompt was saved; at most 256 are remembered."""
        self.saved.pop(length, None)
        self.saved[length] = mark
        if len(self.saved) > _MAX_RAM:
            del self.saved[next(iter(self.saved))]

    def held(self, length: int, before: int) -> Mark | None:
        """Line that saved a prompt of ``length`` tokens before line ``before``, or None."""
        mark = self.saved.get(length)
        return mark if mark is not None and mark.line < before else None


class SlotState(msgspec.Struct):
    """One slot of one session."""

    id: int
    length: int | None = None
    """Tokens held; None when unknown."""
    thread: int | None = None
    """Thread whose text it holds."""
    checkpoints: int = 0
    """Context checkpoints held, counted from the lines that create, erase and drop them."""
    positions: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of the last checkpoint that each request created: all there are up to b8156,
    which prints no checks."""
    limit: int | None = None
    """Checkpoints that its list holds at most, as printed with a creation."""
    dropped: list[Dropped] = msgspec.field(default_factory=list)
    """Checkpoints of the present content that were dropped though still good."""
    spans: list[Span] = msgspec.field(default_factory=list)
    """What was done to the present content, oldest first."""
    used: bool = False
    """A request was launched here since the start."""
    cleared_thread: int | None = None
    """Thread whose text it held until the last launch elsewhere, which by its build clears idle slots."""
    idle_saved: IdleSave | None = None
    """It was saved for being idle, and not cleared yet."""
    evictions: int = 0
    """Evictions of the session when its request was given to it, before the RAM cache was searched."""
    positions_known: bool = True
    """No other checkpoints are held."""
    candidates: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(length, LCP) of the prompts in the RAM cache when the open request came, where listed."""
    choice: Choice | None = None
    request: Request | None = None
    """The request that it processes, or that was released and still waits for its timing lines."""
    released: bool = False
    held: int = -1
    """Index of the request whose last checkpoint is the last of ``positions``."""
    ended: int = -1
    """Task of its last finished request."""
