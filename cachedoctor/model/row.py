"""A request as a report lists it: a row of ``requests`` in the JSON report, and what every other format reads.

Knows the columns. Knows nothing of how a value came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cachedoctor.model.request import Outcome


class CheckpointRow(msgspec.Struct):
    """Context checkpoints of a request; the four counts are None where the build hides them."""

    tried: int | None
    restored: int | None
    created: int | None
    erased: int | None
    held: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of those that the slot is known to have held, where tokens were lost."""
    restored_at: tuple[int, int] | None = None
    """(pos_min, pos_max) of the one that was restored."""


class RequestRow(msgspec.Struct):
    """What llama-server calls a task. Token counts in tokens, times in milliseconds; unknown is None, never 0."""

    index: int
    session: int
    path: str
    slot: int
    task: int
    parent: int | None
    thread: int | None
    first_line: int
    last_line: int
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    generated_tokens: int | None
    derived: list[str]
    prompt_ms: float | None
    selected_by: str | None
    similarity: float | None
    f_keep: float | None
    common_prefix_tokens: int | None
    restored_from_ram: bool | None
    checkpoints: CheckpointRow
    lost_tokens: int | None
    outcome: Outcome
    partial: bool
    codes: list[str]
    expected_cached: int | None = None
    replay_missing: list[str] = msgspec.field(default_factory=list)
    turn: int | None = None
    """0 for the first request of its conversation."""
    reference_tokens: int | None = None
    """Prompt + reply of the conversation's previous request, else what the slot held."""
    held_tokens: int | None = None
    """Length of what the slot held when the request took it."""
    client_lost_tokens: int | None = None
    """Of the lost tokens those that the client changed."""
    server_lost_tokens: int | None = None
    """Of the lost tokens those that the server could not reuse."""
    saved_to_ram: bool = False
    """What the slot held was saved to the RAM prompt cache before."""
    time: str | None = None
    """When it started, ISO 8601, as the wrapper of its first line says; ``--MM-DDTHH:MM:SS`` where that has no year."""
    uptime_ms: float | None = None
    """When it started, since the start of the server, as its first line says."""
    client: str | None = None
    """Address that asked, where the log says it without doubt."""
    endpoint: str | None = None
    """Path of the HTTP request, where the log says it without doubt."""
    avoidable_tokens: int | None = None
    """Tokens that the fix of its dearest cause would have saved; 0 where no rule fired."""
    avoidable_ms: float | None = None
    """Time that this fix would have saved."""


_decoder = msgspec.json.Decoder(RequestRow)


def read_rows(lines: Iterable[bytes]) -> Iterator[RequestRow]:
    """Yield the requests that JSON objects stand for."""
    yield from map(_decoder.decode, lines)
