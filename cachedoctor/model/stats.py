"""Sums over the requests of many logs."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.comparison import Piece

By = Literal["model", "build", "memory", "path", "origin", "client", "endpoint", "hour", "outcome", "slot", "turn"]
"""What requests can be grouped by."""


class StatsRow(msgspec.Struct):
    """Sums over the requests of one group; None where no request of it tells. Children of ``n > 1`` are left out."""

    group: str | None
    """None: the log does not say to which group they belong; in the table of all requests always None."""
    requests: int
    """Children of n > 1 requests are left out."""
    unknown_requests: int
    """Of these, those of which the log does not tell the prompt's length and reuse; they are in no sum below."""
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    reuse: float | None
    """Cached by prompt tokens, 0 to 1."""
    lost_tokens: int | None
    client_lost_tokens: int | None
    server_lost_tokens: int | None
    avoidable_tokens: int | None
    """What the fixes would have saved, as in the totals of a report."""
    avoidable_ms: float | None
    prompt_ms: float | None
    """Milliseconds."""
    prompt_ms_p50: float | None
    """Of one request, exact to 0.5 %."""
    prompt_ms_p90: float | None
    """Of one request."""
    speed_p50: float | None
    """Computed prompt tokens per second of one request, exact to 0.5 %."""
    speed_p90: float | None
    """Computed prompt tokens per second, of one request."""


class StatsTable(msgspec.Struct):
    """The groups of one kind; the overall table has one row."""

    by: By | None
    """None: all requests, one row."""
    rows: list[StatsRow]


class MeasuredRow(msgspec.Struct):
    """Reuse of servers without requests, of one group, from one kind of evidence; none is added to another."""

    by: By | None
    """What it is grouped by; None: all of them."""
    group: str | None
    piece: Piece
    """What tells it: responses, periods of /metrics, prefill batches, intervals, or the last rate of each engine."""
    servers: int
    """Server runs."""
    pieces: int
    prompt_tokens: int | None
    """None of rates."""
    cached_tokens: int | None
    reuse: float
    """Cached by prompt tokens, 0 to 1; of rates their mean."""
    low: float | None
    """95 % interval of it; None with fewer than 5 pieces that are independent."""
    high: float | None
    """95 % interval."""


class StatsInput(msgspec.Struct):
    """One input of the sums."""

    path: str
    kind: Literal["log", "report", "table"]
    error: str | None = None
    """Why it could not be read to its end."""


class Stats(msgspec.Struct):
    """Everything that is shown of many logs."""

    tool_version: str
    inputs: list[StatsInput]
    tables: list[StatsTable]
    measured: list[MeasuredRow] = msgspec.field(default_factory=list)
    """Added after the first release of v1."""
