"""What llama-server calls a task. Knows no engine, no rule, no file."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.lines import Mark
from cachedoctor.model.terms import MarkName

Outcome = Literal["cold", "reused", "partial", "reprocessed", "failed", "cancelled", "unknown"]


class Check(msgspec.Struct, gc=False):
    """A checkpoint that the server looked at: positions it covers, and the threshold it had to lie below."""

    pos_min: int
    pos_max: int
    threshold: int
    line: int
    text: bytes = b""
    """The line itself, where it was printed."""


class Dropped(msgspec.Struct, gc=False):
    """A context checkpoint that the server dropped though it was still good: its list was full, or too dense."""

    tokens: int
    """Prompt tokens that it covered."""
    pos_min: int
    pos_max: int
    size_mib: float
    limit: int | None
    """Checkpoints that the list holds; None where the log does not say."""
    crowded: bool
    """Dropped for being too close to an earlier one (b10068 and newer), not because it was the oldest."""
    roomy: bool
    """The list was at most half full."""
    line: int
    text: bytes = b""
    behind: int = 1
    """It and those dropped after it: how much longer the list had to be to keep it."""


class Request(msgspec.Struct):
    """What llama-server calls a task. Token counts in tokens, times in milliseconds; unknown is None, never 0."""

    index: int
    session: int
    path: str
    slot: int
    task: int
    first_line: int
    last_line: int
    parent: int | None = None
    """Task of which this is one of the ``n > 1`` choices."""
    thread: int | None = None
    """Conversation, numbered in the session."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    generated_tokens: int | None = None
    derived: list[str] = msgspec.field(default_factory=list)
    """Names of the fields that were computed from other numbers."""
    prompt_ms: float | None = None
    selected_by: Literal["lcp", "lru", "id"] | None = None
    similarity: float | None = None
    """Share of the new prompt that the slot already held."""
    f_keep: float | None = None
    """Share of the slot's content that the new prompt kept."""
    common_prefix_tokens: int | None = None
    """Longest common prefix with what the slot held when processing began."""
    lcp_exact: bool = False
    """The common prefix was printed, not estimated from rounded shares."""
    restored_from_ram: bool | None = None
    tried: int | None = None
    restored: int | None = None
    created: int | None = None
    erased: int | None = None
    """Context checkpoints: looked at, restored, created, erased. None where this build hides them at this level."""
    lost_tokens: int | None = None
    lost_client: int | None = None
    """Reference - LCP: what the client changed."""
    lost_server: int | None = None
    """LCP - cached: what the server could not reuse."""
    reference_tokens: int | None = None
    """Prompt + reply of the thread's previous request, else what the slot held."""
    held_tokens: int | None = None
    """Length of the slot's content when the request took it (before a swap from RAM)."""
    held_thread: int | None = None
    thread_turn: int = 0
    """0 for the first request of its thread."""
    other_candidates: int = 0
    """Threads beside its own that this prompt could have extended."""
    outcome: Outcome = "unknown"
    partial: bool = False
    released_tokens: int | None = None
    """Length of the slot after the reply."""
    forced: bool = False
    """The server printed that it forces full re-processing."""
    truncate_failed_at: int | None = None
    shifted: bool = False
    cut_prompt: bool = False
    """The prompt did not fit, and the server cut it (up to b6628)."""
    cancelled: bool = False
    error: str | None = None
    error_tokens: int | None = None
    """Prompt tokens that an over-long request had, from its error."""
    error_limit: int | None = None
    images: bool = False
    t_last: int | None = None
    """Clock of the slot's last use as printed in an LRU choice, microseconds; -1 for a slot never used."""
    checks: list[Check] = msgspec.field(default_factory=list)
    held_checkpoints: int | None = None
    """Checkpoints the slot held when the request came; None when the log hides them."""
    held_positions: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of those whose creation was printed, the oldest first; meant for builds that print no checks
    (up to b8156)."""
    positions_known: bool = False
    """They are all that the slot held: not so behind a swap from RAM or a slot file, until the list was emptied."""
    dropped: Dropped | None = None
    """The dropped checkpoint that would have given back more of the common prefix than was reused."""
    stale_from: int | None = None
    """Position from which on the restored checkpoint stands for text that had been replaced."""
    held_before: int | None = None
    """Thread whose text the slot held until a slot file was restored into it."""
    ram_looked: bool = False
    """The RAM prompt cache was searched for a better prompt."""
    ram_saved: bool = False
    """What the slot held was saved to the RAM prompt cache before."""
    ram_refused: bool = False
    """The RAM prompt cache held what this conversation had before, was searched, and did not give it back."""
    reference_lcp: int | None = None
    """Longest common prefix with the reference itself, where the RAM cache lists it; the slot held something else."""
    ram_best_lcp: int | None = None
    """Longest common prefix with any prompt of the RAM cache, where the log lists them."""
    reused_chunks: int = 0
    """Tokens moved by --cache-reuse."""
    old_text: str | None = None
    new_text: str | None = None
    """Text around the divergence as printed by LLAMA_SERVER_SLOTS_DEBUG=1, the bar included."""
    prefix_between: tuple[int, int] | None = None
    """Bounds of the common prefix as the log gives them, before reuse has a say; equal where it was printed."""
    oldest_position: int | None = None
    """Smallest position that the memory still had, where printed (b5586 to b9294, when going back was needed)."""
    restored_at: tuple[int, int] | None = None
    """(pos_min, pos_max) of the checkpoint that was restored."""
    time: str | None = None
    """When it started, ISO 8601, as the wrapper of its first line says."""
    client: str | None = None
    endpoint: str | None = None
    """Who asked, and what for, where the log says it without doubt; only looked for where requests are listed."""
    marks: dict[MarkName, Mark] = msgspec.field(default_factory=dict)
