"""A request as listed in a report, and the requests that took longest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated

import msgspec

from cachedoctor.model.account import ClientBy
from cachedoctor.model.bounds import Code, Count, LineNumber, Long, Ms, Position, Share, SlotId, TaskId
from cachedoctor.model.request import Outcome

_SELECTED_BY = {"contract": {"enum": ["lcp", "lru", "id"]}}
_MISSING = {
    "contract": {
        "enum": [
            "build", "checkpoints_held", "common_prefix", "image_positions", "memory", "oldest_position",
            "prompt_length", "slot_length", "window",
        ]
    }
}  # fmt: skip


class CheckpointRow(msgspec.Struct, gc=False):
    """Context checkpoints of a request; the four counts are None if the build hides them."""

    tried: Count | None
    restored: Count | None
    created: Count | None
    erased: Count | None
    held: list[tuple[Position, Position]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of the checkpoints known to be in the slot, if tokens were lost."""
    restored_at: tuple[Position, Position] | None = None
    """(pos_min, pos_max) of the checkpoint that was restored."""


class RequestRow(msgspec.Struct, gc=False):
    """What llama-server calls a task. Token counts in tokens, times in milliseconds; unknown is None, never 0."""

    index: Count
    """Position in this array."""
    session: Count
    path: str
    slot: SlotId
    task: TaskId
    parent: Long | None
    """Task of which this is one of the n > 1 choices."""
    thread: Count | None
    """Conversation, numbered in the session."""
    first_line: LineNumber
    last_line: LineNumber
    prompt_tokens: Count | None
    cached_tokens: Count | None
    processed_tokens: Count | None
    generated_tokens: Count | None
    derived: list[str]
    """Names of the fields that were computed from other numbers."""
    prompt_ms: Ms | None
    selected_by: Annotated[str, msgspec.Meta(extra_json_schema=_SELECTED_BY)] | None
    similarity: Share | None
    """Share of the new prompt that the slot already held."""
    f_keep: Share | None
    """Share of what the slot held that the new prompt kept."""
    common_prefix_tokens: Count | None
    restored_from_ram: bool | None
    checkpoints: CheckpointRow
    """Context checkpoints; None if the build hides them."""
    lost_tokens: Count | None
    """What could have been reused and was not."""
    outcome: Outcome
    partial: bool
    """The log lacks the beginning or the end of it."""
    codes: list[Code]
    """Findings that this request belongs to."""
    expected_cached: Count | None = None
    """Tokens that this build should have reused, given the slot's content. Null if nothing was lost, or if the log
    lacks a number."""
    replay_missing: list[Annotated[str, msgspec.Meta(extra_json_schema=_MISSING)]] = msgspec.field(default_factory=list)
    """The numbers that the log lacks for expected_cached."""
    turn: Count | None = None
    """0 for the first request of its conversation."""
    reference_tokens: Count | None = None
    """Prompt + reply of the conversation's previous request, else what the slot held."""
    held_tokens: Count | None = None
    """Length of what the slot held when the request took it."""
    client_lost_tokens: Count | None = None
    """Lost tokens that follow the client's change."""
    server_lost_tokens: Count | None = None
    """Lost tokens that the server could not reuse."""
    saved_to_ram: bool = False
    """What the slot held was saved to the RAM prompt cache before."""
    time: str | None = None
    """When it started, ISO 8601, from the wrapper of its first line; ``--MM-DDTHH:MM:SS`` where that has no year."""
    uptime_ms: Ms | None = None
    """When it started, since the start of the server, as its first line shows."""
    client: str | None = None
    """Address of the client, if the log shows it without doubt."""
    endpoint: str | None = None
    """Path of the HTTP request, if the log shows it without doubt."""
    avoidable_tokens: Count | None = None
    """Tokens that the fixes of its causes would have saved, each counted once; 0 if no rule fired."""
    avoidable_ms: Ms | None = None
    """Time that these fixes would have saved."""
    identities: dict[str, str] = msgspec.field(default_factory=dict)
    """Formula by which each derived field was computed: ``prompt - processed``."""
    bounds: dict[str, tuple[Count, Count]] = msgspec.field(default_factory=dict)
    """Lower and upper bound of the fields that the log gives only as rounded shares."""
    at_least: dict[str, Count] = msgspec.field(default_factory=dict)
    """Lower bound of fields that have no upper one."""
    client_by: ClientBy | None = None
    """What names the client: an id of its body, or what the log shows."""
    client_name: str | None = None
    """The client, by the most certain of these; salts and system prompts are hashed."""


class Counted(msgspec.Struct, frozen=True):
    """The tokens of a request that sums are made of."""

    prompt: int
    cached: int
    processed: int | None
    """None for a request that ended without timings; sums of computed tokens exclude it."""


def counted(row: RequestRow, *, children: bool = False) -> Counted | None:
    """Return the token counts of a request for sums; None if the log does not show its prompt and reuse.

    Nothing of a child of an ``n > 1`` request counts, as it shares the prompt of its parent, unless ``children``.
    """
    if row.prompt_tokens is None or row.cached_tokens is None or (row.parent is not None and not children):
        return None
    return Counted(row.prompt_tokens, row.cached_tokens, row.processed_tokens)


@cache
def _decoder() -> msgspec.json.Decoder[RequestRow]:
    return msgspec.json.Decoder(RequestRow)


def read_rows(lines: Iterable[bytes]) -> Iterator[RequestRow]:
    """Yield the requests decoded from JSON objects."""
    for line in lines:
        yield _decoder().decode(line)


class SlowTurn(msgspec.Struct):
    """Tokens and times of one request; None if the log does not show them."""

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
    """Recomputed: these tokens had been computed before at this position, or follow the client's change."""
    undecided_tokens: Count | None
    """Computed, and the log does not show whether they were new."""
    reply_tokens: Count | None
    reply_ms: Ms | None

    @property
    def ms(self) -> float:
        """Milliseconds of prompt and reply."""
        return self.prompt_ms + (self.reply_ms or 0.0)
