"""Two reports side by side: what a change of the server or the client did."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.finding import Severity

Piece = Literal["conversation", "response", "metrics", "batch", "interval", "rate"]
"""What tells of reuse, piece by piece: conversations of a log with requests; else responses, what /metrics counted
between two dumps, prefill batches, intervals of statistics whose tokens are known, or the last rate of each engine."""
Direction = Literal["better", "worse", "same", "unsure"]
Change = Literal["went", "came", "stayed", "hidden", "revealed"]
"""``hidden``: reported before, and AFTER could not have shown it; ``revealed``: BEFORE could not have shown it."""


class ComparedSide(msgspec.Struct):
    """One of the two reports, in sums; children of ``n > 1`` requests are left out."""

    path: str
    error: str | None
    """Why the input could not be read to its end."""
    servers: list[str]
    """What each different server is, in words."""
    requests: int
    unknown_requests: int
    """Of these, those of which the log does not show the prompt's length and reuse; no measure has them."""
    conversations: int
    """Among the requests that are known; one that belongs to none is one of its own."""
    prompt_tokens: int
    cached_tokens: int
    processed_tokens: int
    prompt_ms: float
    """Milliseconds."""
    prompt_tokens_median: float | None
    piece: Piece = "conversation"
    """What the sums are of, and the measures; with rates there are no tokens. Added after the first release of v1."""
    pieces: int = 0
    """How many of these there are. Added after the first release of v1."""


class Measure(msgspec.Struct):
    """One number of both sides: a sum by a sum."""

    name: str
    unit: str
    """share (0 to 1), tokens or ms."""
    scope: Literal["all", "later"]
    """``later``: without the first request of each conversation."""
    good: Literal["higher", "lower"]
    """Which way is better."""
    before: float | None
    """A sum by a sum, not a mean of ratios."""
    after: float | None
    difference: float | None
    """After minus before."""
    low: float | None
    """95 % interval of the difference; None with fewer than 5 conversations, or other pieces, on a side."""
    high: float | None
    """95 % interval of the difference; None with too few conversations."""
    conversations_before: int
    """Conversations, or other pieces, that tell this measure."""
    conversations_after: int
    verdict: Direction
    """same: equal, or certainly no larger than one point or one per cent. unsure: the interval holds 0, or there
    is none."""
    why: str
    """What the verdict rests on, in a sentence."""
    piece: Piece = "conversation"
    """What the two counts are of. Added after the first release of v1."""


class FindingSide(msgspec.Struct):
    """All findings of one code on one side."""

    severity: Severity
    count: int
    """Requests that they hit; how often they were seen, where they are of whole servers."""
    requests: int
    """Requests that there were; findings count children of ``n > 1`` requests, and so does this."""
    tokens: int
    """Avoidable tokens."""
    ms: float | None
    """Avoidable time, milliseconds."""
    claims: list[str]
    of: Literal["requests", "servers"]
    """What they are about: requests, or whole servers."""


class FindingChange(msgspec.Struct):
    """What became of a finding."""

    change: Change
    """came, stayed, went; hidden: AFTER could not have shown it; revealed: BEFORE could not."""
    code: str
    name: str
    before: FindingSide | None
    after: FindingSide | None
    sure: bool
    """False where as few requests might have missed it by chance, and where it could not be seen."""
    note: str
    """Why it is not sure, or why it is hidden; else empty."""
    enable: str
    """What would show it again, for this build; else empty."""


class Difference(msgspec.Struct):
    """A fact in which both sides differ."""

    name: str
    before: str
    after: str
    caveat: str
    """Why the measures may differ for this alone; else empty."""


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
