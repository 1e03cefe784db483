"""What is known of a log that is still written, and of requests that pass through a proxy."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.finding import Finding, Judged
from cachedoctor.model.measured import CacheSample, PrefillBatch
from cachedoctor.model.observed import Observed
from cachedoctor.model.report import InputInfo, Totals
from cachedoctor.model.session import Session


class SlotView(msgspec.Struct):
    """A slot as the last lines left it. Token counts in tokens; unknown is None, never 0."""

    slot: int
    state: Literal["idle", "prompt", "reply", "busy", "unknown"]
    """``busy``: computing the prompt or the reply, the log does not show which; ``unknown``: no line shows the slot."""
    request: Observed | None = None
    """Request that it computes; None while it is idle."""
    tokens: int | None = None
    """Prompt tokens of that request that are in the slot by now, reused or processed."""
    share: float | None = None
    """Share of its prompt that is done."""
    generated: int | None = None
    """Tokens of its reply so far."""
    last: Judged | None = None
    """Last request that ended in this slot."""


class ServerView(msgspec.Struct):
    """A server that writes to the log."""

    session: Session
    slots: list[SlotView]


class MeasuredView(msgspec.Struct):
    """A server whose log has measurements instead of requests."""

    session: Session
    rows: list[CacheSample | PrefillBatch]
    """The last one of each engine or rank, in the order of their names."""


class LiveView(msgspec.Struct):
    """Everything at one moment."""

    info: InputInfo
    servers: list[ServerView]
    totals: Totals
    findings: list[Finding]
    """The findings, the costliest first."""
    measured: list[MeasuredView] = msgspec.field(default_factory=list)
    ended: list[tuple[Judged, Session]] = msgspec.field(default_factory=list)
    """The last requests and the servers that answered them, the newest first."""


class ConversationView(msgspec.Struct):
    """A conversation as its last request left it. Counts in tokens; unknown is None, never 0."""

    number: int
    """Number assigned by the proxy; after a restart, numbering starts again."""
    requests: int = 0
    model: str | None = None
    prompt_tokens: int | None = None
    """Prompt tokens of the last request."""
    cached_tokens: int | None = None
    """Prompt tokens that the server reused."""
    recomputed: int | None = None
    """Total tokens of previous prompts recomputed for its requests; None if none is known."""
    changes: int = 0
    """Requests in which the client changed what it had sent."""
    lost: int = 0
    """Requests that only continued, but for which the server recomputed much of the previous prompt."""
    kind: str | None = None
    """What the last change was, as ``diff`` names it; None without one."""
    place: str | None = None
    """Where in the request it was."""
    explanation: str = ""
    advice: str | None = None
    trouble: str = ""
    """Why the last request failed; empty if it did not."""
    last: float = 0.0
    """Seconds since 1970 when its last request was sent."""


class PassingView(msgspec.Struct):
    """Everything at one moment."""

    path: str
    conversations: list[ConversationView]
    """The one that cost most first, then the latest."""
    requests: int = 0
    failed: int = 0
    counted: int = 0
    """Requests of which prompt and reused tokens are known; the sums are theirs."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed: int = 0
    unread: int = 0
    """Lines that no proxy wrote, or that are too long."""
