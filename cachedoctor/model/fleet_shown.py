"""What many logs come to: what the page of a fleet shows."""

from __future__ import annotations

import msgspec


class FleetSums(msgspec.Struct):
    """Sums over requests; None is what no log tells."""

    requests: int = 0
    """Children of ``n > 1`` requests are left out."""
    unknown_requests: int = 0
    """Of these, those of which no log tells prompt and reuse."""
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
    """The highest."""
    logs: int
    requests: int
    tokens: int
    ms: float | None
    worst: str
    """The log that it cost most."""
    report: str | None
    """The page of that log."""


class FleetCauseGroup(msgspec.Struct):
    """One cause on one build, or of one client."""

    code: str
    name: str
    group: str | None
    """None: no log tells."""
    logs: int
    requests: int
    tokens: int


class FleetGroup(msgspec.Struct):
    """The requests of one build, client, or day."""

    group: str | None
    """None: no log tells."""
    sums: FleetSums


class FleetFile(msgspec.Struct):
    """A file that was not read to its end, is no log, or changed meanwhile."""

    path: str
    status: str
    reason: str


class FleetPage(msgspec.Struct):
    """Everything that the page of a fleet shows; lists are cut, sums are not."""

    tool_version: str
    sums: FleetSums
    files: dict[str, int]
    """How many by status."""
    bytes: int
    """Of all files, as they are stored."""
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
    """Logs that are still to be read: the run goes on, or ended early."""
