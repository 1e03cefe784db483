"""What can be said of a log that is still written: servers, their slots, sums and findings so far."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.batch import PrefillBatch
from cachedoctor.model.finding import Finding
from cachedoctor.model.observed import Observed
from cachedoctor.model.report import InputInfo, Totals
from cachedoctor.model.sample import CacheSample
from cachedoctor.model.session import Session
from cachedoctor.model.verdict import Judged


class SlotView(msgspec.Struct):
    """A slot as the last lines left it. Token counts in tokens; unknown is None, never 0."""

    slot: int
    state: Literal["idle", "prompt", "reply", "busy", "unknown"]
    """``busy``: with the prompt or the reply, the log does not say which; ``unknown``: no line told of the slot."""
    request: Observed | None = None
    """The one that it computes; None while it is idle."""
    tokens: int | None = None
    """Prompt tokens of that request that are in the slot by now, reused or processed."""
    share: float | None = None
    """Share of its prompt that is done."""
    generated: int | None = None
    """Tokens of its reply so far."""
    last: Judged | None = None
    """The last one that ended here."""


class ServerView(msgspec.Struct):
    """A server that writes to the log."""

    session: Session
    slots: list[SlotView]


class MeasuredView(msgspec.Struct):
    """A server whose log has measurements instead of requests."""

    session: Session
    rows: list[CacheSample | PrefillBatch]
    """The last one of each engine or rank, in the order of their names."""


class View(msgspec.Struct):
    """Everything at one moment."""

    info: InputInfo
    servers: list[ServerView]
    totals: Totals
    findings: list[Finding]
    """The costliest first."""
    measured: list[MeasuredView] = msgspec.field(default_factory=list)
