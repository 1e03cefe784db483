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
    """Context checkpoints of a request; the four counts are None if the build does not log checkpoints."""

    tried: Count | None
    restored: Count | None
    created: Count | None
    erased: Count | None
    held: list[tuple[Position, Position]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of the checkpoints known to be in the slot, if tokens were lost."""
    restored_at: tuple[Position, Position] | None = None
    """(pos_min, pos_max) of the checkpoint that was restored."""


class RequestRow(msgspec.Struct, gc=False):
    """One request, which llama-server calls a task. Times are in milliseconds. An unknown value is None, never 0."""

    index: Count
    """Position in this array."""
    session: Count
    path: str
    slot: SlotId
    task: TaskId
    parent: Long | None
    """Task number of the request of which this task is one choice (n > 1)."""
    thread: Count | None
    """Number of the conversation within the session."""
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
    """Share of the new prompt that was already in the slot."""
    f_keep: Share | None
    """Share of the slot's content that the new prompt kept."""
    common_prefix_tokens: Count | None
    restored_from_ram: bool | None
    checkpoints: CheckpointRow
    """Context checkpoints; None if the build does not log checkpoints."""
    lost_tokens: Count | None
    """Tokens that could have been reused but were not."""
    outcome: Outcome
    partial: bool
    """True if the log lacks the beginning or the end of the request."""
    codes: list[Code]
    """Codes of the findings that this request belongs to."""
    expected_cached: Count | None = None
    """Tokens that this build should have reused, given the slot's content. Null if nothing was lost, or if the log
    lacks a number."""
    replay_missing: list[Annotated[str, msgspec.Meta(extra_json_schema=_MISSING)]] = msgspec.field(default_factory=list)
    """Numbers that expected_cached needs but the log lacks."""
    turn: Count | None = None
    """Number of the request within its conversation, from 0."""
    reference_tokens: Count | None = None
    """Length of the conversation's previous prompt and reply; if unknown, length of the slot's content."""
    held_tokens: Count | None = None
    """Length of the slot's content when the request took the slot."""
    client_lost_tokens: Count | None = None
    """Lost tokens after the change by the client."""
    server_lost_tokens: Count | None = None
    """Lost tokens that the server could not reuse."""
    saved_to_ram: bool = False
    """True if the slot's old content was first saved to the RAM prompt cache."""
    time: str | None = None
    """Start time in ISO 8601, from the wrapper of the first line; ``--MM-DDTHH:MM:SS`` if the wrapper has no year."""
    uptime_ms: Ms | None = None
    """Start time in milliseconds since the server start, from the first line."""
    client: str | None = None
    """Address of the client, if the log shows it unambiguously."""
    endpoint: str | None = None
    """Path of the HTTP request, if the log shows it unambiguously."""
    avoidable_tokens: Count | None = None
    """Tokens that the fixes would have saved in this request, each counted once; 0 if the request has no finding."""
    avoidable_ms: Ms | None = None
    """Milliseconds that the fixes would have saved in this request."""
    identities: dict[str, str] = msgspec.field(default_factory=dict)
    """Formula by which each derived field was computed: ``prompt - processed``."""
    bounds: dict[str, tuple[Count, Count]] = msgspec.field(default_factory=dict)
    """Lower and upper bound of the fields that the log gives only as rounded shares."""
    at_least: dict[str, Count] = msgspec.field(default_factory=dict)
    """Lower bound of fields without an upper bound."""
    client_by: ClientBy | None = None
    """What identifies the client: an id in the request body, or a value in the log."""
    client_name: str | None = None
    """Name of the client, from its most reliable identification; salts and system prompts are hashed."""


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
    """First line of the request."""
    slot: SlotId
    task: TaskId
    prompt_ms: Ms
    reused_tokens: Count | None
    new_tokens: Count | None
    """Computed tokens that were never sent before at this position."""
    again_tokens: Count | None
    """Recomputed tokens: computed before at this position, or after the change by the client."""
    undecided_tokens: Count | None
    """Computed tokens of which the log does not show whether they were new."""
    reply_tokens: Count | None
    reply_ms: Ms | None

    @property
    def ms(self) -> float:
        """Milliseconds of prompt and reply."""
        return self.prompt_ms + (self.reply_ms or 0.0)
