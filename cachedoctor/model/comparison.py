"""Two reports side by side: what a change of the server or the client did."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.finding import Severity

Piece = Literal["conversation", "response", "metrics", "batch", "interval", "rate"]
"""Source of the reuse figures, the first available of: conversations of a log with requests; responses; /metrics
counters between two dumps; prefill batches; statistics intervals with known tokens; the last rate of each engine."""
Direction = Literal["better", "worse", "same", "unsure"]
Change = Literal["went", "came", "stayed", "hidden", "revealed"]
"""``hidden``: reported before, but the log AFTER cannot show it; ``revealed``: the log BEFORE could not show it."""


class ComparedSide(msgspec.Struct):
    """One of the two reports, in sums; children of ``n > 1`` requests are left out."""

    path: str
    error: str | None
    """Why the input could not be read to the end."""
    servers: list[str]
    """Each different server, described in words."""
    requests: int
    unknown_requests: int
    """Number of these requests whose prompt length and reuse the log does not show; no measure includes such
    requests."""
    conversations: int
    """Conversations of the requests with known reuse; a request without a conversation counts as one conversation."""
    prompt_tokens: int
    cached_tokens: int
    processed_tokens: int
    prompt_ms: float
    """Milliseconds."""
    prompt_tokens_median: float | None
    piece: Piece = "conversation"
    """Unit that the sums and measures are taken over; with rates there are no token counts. Added after the first
    release of v1."""
    pieces: int = 0
    """Number of pieces on this side. Added after the first release of v1."""


class Measure(msgspec.Struct):
    """One number for both sides: one sum divided by another."""

    name: str
    unit: str
    """share (0 to 1), tokens or ms."""
    scope: Literal["all", "later"]
    """``all`` requests, or ``later``: without the first request of each conversation."""
    good: Literal["higher", "lower"]
    """The better direction."""
    before: float | None
    """One sum divided by another, not a mean of ratios."""
    after: float | None
    difference: float | None
    """Value after the change minus value before it."""
    low: float | None
    """Lower end of the 95 % interval of the difference; None with fewer than 5 conversations (or other pieces) on a
    side."""
    high: float | None
    """Upper end of the 95 % interval of the difference; None with too few conversations."""
    conversations_before: int
    """Number of conversations, or other pieces, with this measure on the side BEFORE."""
    conversations_after: int
    verdict: Direction
    """same: equal, or a difference that is certainly at most one point or one per cent. unsure: the interval includes
    0, or there is no interval."""
    why: str
    """Reason for the verdict, in one sentence."""
    piece: Piece = "conversation"
    """Unit of the two counts. Added after the first release of v1."""


class FindingSide(msgspec.Struct):
    """All findings of one code on one side."""

    severity: Severity
    count: int
    """Requests affected; or number of occurrences, for findings about whole servers."""
    requests: int
    """Total requests; like the findings, this counts the children of ``n > 1`` requests."""
    tokens: int
    """Avoidable tokens."""
    ms: float | None
    """Avoidable time in milliseconds."""
    claims: list[str]
    of: Literal["requests", "servers"]
    """What the findings are about: requests, or whole servers."""


class FindingChange(msgspec.Struct):
    """How a finding changed from BEFORE to AFTER."""

    change: Change
    """came, stayed, went; hidden: AFTER could not show the finding; revealed: BEFORE could not show it."""
    code: str
    name: str
    before: FindingSide | None
    after: FindingSide | None
    sure: bool
    """False if the finding may be absent by chance because there are few requests, or if AFTER or BEFORE could not show
    it."""
    note: str
    """Why the change is not sure, or why the finding is hidden; else empty."""
    enable: str
    """How to make the log of this build show the finding again; else empty."""


class Difference(msgspec.Struct):
    """A fact in which both sides differ."""

    name: str
    before: str
    after: str
    caveat: str
    """Why this difference alone may change the measures; else empty."""


class Comparison(msgspec.Struct):
    """Everything that is shown of two reports."""

    tool_version: str
    before: ComparedSide
    after: ComparedSide
    verdict: Direction
    why: str
    measures: list[Measure]
    """The first one decides."""
    findings: list[FindingChange]
    differences: list[Difference]
