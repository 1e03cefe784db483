"""Sums over many logs, and what the page of a fleet shows."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.comparison import Piece

By = Literal["model", "build", "memory", "path", "origin", "client", "endpoint", "hour", "outcome", "slot", "turn"]
"""Properties that requests can be grouped by."""


class StatsRow(msgspec.Struct):
    """Sums over the requests of one group; None if no request of the group shows the number. Children of ``n > 1``
    requests are left out."""

    group: str | None
    """Name of the group; None if the log does not show the group, and for the row of all requests."""
    requests: int
    """Number of requests, without children of n > 1 requests."""
    unknown_requests: int
    """Number of these requests whose prompt length and reuse the log does not show; the sums below exclude such
    requests."""
    prompt_tokens: int | None
    cached_tokens: int | None
    processed_tokens: int | None
    reuse: float | None
    """Cached tokens divided by prompt tokens, from 0 to 1."""
    lost_tokens: int | None
    client_lost_tokens: int | None
    server_lost_tokens: int | None
    avoidable_tokens: int | None
    """Tokens that the fixes would have saved, as in the totals of a report."""
    avoidable_ms: float | None
    prompt_ms: float | None
    """Milliseconds."""
    prompt_ms_p50: float | None
    """Median prompt time of one request, exact to 0.5 %."""
    prompt_ms_p90: float | None
    """90th percentile of the prompt time of one request."""
    speed_p50: float | None
    """Computed prompt tokens per second of one request, exact to 0.5 %."""
    speed_p90: float | None
    """Computed prompt tokens per second, of one request."""


class StatsTable(msgspec.Struct):
    """The groups of one kind; the overall table has one row."""

    by: By | None
    """Property that the requests are grouped by; None for the table of all requests."""
    rows: list[StatsRow]


class MeasuredRow(msgspec.Struct):
    """Reuse of one group of servers without requests, from one kind of evidence. Different kinds are not added
    together."""

    by: By | None
    """Property that the servers are grouped by; None for all servers."""
    group: str | None
    piece: Piece
    """Source: responses, periods of /metrics, prefill batches, intervals, or the last rate of each engine."""
    servers: int
    """Server runs."""
    pieces: int
    prompt_tokens: int | None
    """Prompt tokens; None for rates."""
    cached_tokens: int | None
    reuse: float
    """Cached tokens divided by prompt tokens, from 0 to 1; for rates, the mean rate."""
    low: float | None
    """Lower end of the 95 % interval of ``reuse``; None with fewer than 5 independent pieces."""
    high: float | None
    """Upper end of the 95 % interval; None with fewer than 5 independent pieces."""


class StatsInput(msgspec.Struct):
    """One input of the sums."""

    path: str
    kind: Literal["log", "report", "table"]
    error: str | None = None
    """Why the input could not be read to the end."""


class Stats(msgspec.Struct):
    """Everything that is shown of many logs."""

    tool_version: str
    inputs: list[StatsInput]
    tables: list[StatsTable]
    measured: list[MeasuredRow] = msgspec.field(default_factory=list)
    """Added after the first release of v1."""


class FleetSums(msgspec.Struct):
    """Sums over requests; None for what no log shows."""

    requests: int = 0
    """Children of ``n > 1`` requests are left out."""
    unknown_requests: int = 0
    """Of these, requests whose prompt and reuse no log shows."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    avoidable_tokens: int | None = None
    prompt_ms: float | None = None
    """Milliseconds."""


class FleetLog(msgspec.Struct):
    """One log, with all its rotations."""

    log: str
    report: str | None
    """Its page, from the folder of the result."""
    files: int
    sums: FleetSums
    findings: int = 0
    worst: str | None = None
    """Code and name of the costliest finding."""


class FleetCause(msgspec.Struct):
    """Findings of one code over all logs."""

    code: str
    name: str
    severity: str
    """Highest severity of the findings."""
    logs: int
    requests: int
    tokens: int
    ms: float | None
    worst: str
    """The log with the highest cost."""
    report: str | None
    """The page of that log."""
    confidence: str
    """Highest confidence of the findings."""
    fix: str | None
    """First thing to do about the costliest finding; None if there is nothing to do."""
    commands: list[str]
    """Commands to copy."""
    summary: str = ""
    """What the rule is about."""


class FleetCauseGroup(msgspec.Struct):
    """One cause on one build, or of one client."""

    code: str
    name: str
    group: str | None
    """None if no log shows it."""
    logs: int
    requests: int
    tokens: int


class FleetGroup(msgspec.Struct):
    """The requests of one build, client, or day."""

    group: str | None
    """None if no log shows it."""
    sums: FleetSums


class FleetFile(msgspec.Struct):
    """A file that was not read to its end, is not a log, or changed meanwhile."""

    path: str
    status: str
    reason: str


class FleetPage(msgspec.Struct):
    """Everything that the page of a fleet shows; lists are truncated, sums are not."""

    tool_version: str
    sums: FleetSums
    files: dict[str, int]
    """Number of files by status."""
    bytes: int
    """Bytes of all files as stored."""
    servers: int
    """Runs of servers."""
    engines: dict[str, int]
    """Runs of servers by engine."""
    logs: list[FleetLog]
    """The worst first: those with the most avoidable tokens."""
    all_logs: int
    causes: list[FleetCause]
    all_causes: int
    cause_builds: list[FleetCauseGroup]
    cause_clients: list[FleetCauseGroup]
    builds: list[FleetGroup]
    clients: list[FleetGroup]
    all_clients: int
    days: list[FleetGroup]
    amiss: list[FleetFile]
    all_amiss: int
    waiting: int = 0
    """Logs that are not read yet: the run continues, or ended early."""
