"""What a rule found, and what it could not evaluate. Knows no engine, no rule, no file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cachedoctor.model.bounds import Count, Long, LongMs

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]

SEVERITY_ORDER: dict[str, int] = {"note": 0, "warning": 1, "error": 2}
CONFIDENCE_ORDER: dict[str, int] = {"low": 0, "medium": 1, "high": 2}


class Evidence(msgspec.Struct):
    """A line that proves a finding."""

    path: str
    session: Count
    """Index of the session."""
    line: Long
    """Number of the line, from 1."""
    text: str
    """The line without its wrapper, as it was logged: hostile, and perhaps secret. Formats show less of it."""
    role: Literal["primary", "related"]
    label: str
    """What the line shows."""


class Cost(msgspec.Struct):
    """What the fix would have saved."""

    tokens: Long
    ms: LongMs | None
    """Milliseconds; None where the log has no timings."""
    ms_from: Literal["depth", "mean"] | None = None
    """Taken from the speed at that depth, fitted to this server's timings, or from the mean speed of each request."""


class Remedy(msgspec.Struct):
    """What to do, and commands that can be copied."""

    text: str
    commands: list[str] = msgspec.field(default_factory=list)


class RuledOut(msgspec.Struct):
    """A look-alike, and the line of thought that excludes it."""

    name: str
    why: str


class Finding(msgspec.Struct):
    """A cause, grouped over all requests that it hit."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    claim: str
    """What happened, with its numbers."""
    requests: list[Count]
    """Indexes of the first 20 requests and the worst 5."""
    count: Count
    """All requests that it hit."""
    evidence: list[Evidence]
    """The line that proves it first; none where no line but the command line does."""
    cost: Cost
    why: str
    """Why the cache could not be used."""
    ruled_out: list[RuledOut]
    """Look-alikes, and what excludes them."""
    diff: Any
    """The difference of two prompts that proves it, or None."""
    remedies: list[Remedy]
    """What to do, the best first."""
    references: list[str]
    """Addresses of what is known of it upstream."""
    path: str | None = None
    """Input that it is about; None in reports of earlier versions."""
    origin: str | None = None
    """Server that the wrapper names, as in its session."""
    key: str = ""
    """Cause, where a code has several: findings of one code differ in key, path or origin."""

    @property
    def primary(self) -> Evidence | None:
        """The line that proves it, or None where no line does."""
        return next((e for e in self.evidence if e.role == "primary"), None)

    @property
    def identity(self) -> tuple[str, str, str | None, str | None]:
        """What tells it from the other findings of its report, also of one that is made later from the same log."""
        return self.code, self.key, self.path, self.origin


class NotEvaluated(msgspec.Struct):
    """A rule that the log could not have shown."""

    code: str
    name: str
    reason: str
    enable: str
    """What would make it possible, for this build."""


class Restart(msgspec.Struct):
    """The one restart of the server after which most of what was not evaluated could be."""

    command: str
    """``llama-server ...`` stands for what the user has."""
    text: str
    """What to know before: prompts will stand in the log; what these builds cannot show."""
    codes: list[str]
    """Rules that it enables."""


class RuleInfo(msgspec.Struct):
    """A rule as a report names it."""

    code: str
    name: str
    summary: str
    url: str
    """Of its page, relative to the root of the repository."""
