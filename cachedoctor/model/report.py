"""Everything a renderer needs. Knows no engine, no rule, no file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Protocol

import msgspec

from cachedoctor.model.finding import Finding, NotEvaluated, Restart, RuleInfo
from cachedoctor.model.row import RequestRow
from cachedoctor.model.session import Session


class InputInfo(msgspec.Struct):
    """One input and how much of it was understood."""

    path: str
    engine: str | None = None
    bytes: int = 0
    lines: int = 0
    recognised: int = 0
    error: str | None = None


class Totals(msgspec.Struct):
    """Sums over all requests with known accounting; children of ``n > 1`` requests are left out."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    processed_tokens: int = 0
    reuse: float | None = None
    prompt_ms: float = 0.0
    avoidable_tokens: int = 0
    avoidable_ms: float | None = None


class RequestLines(Protocol):
    """Finished requests in the order in which they started, as rows or as JSON; a new pass at each call."""

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when some of them were lost."""

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield every request."""

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object per request, without newline."""

    def copy_to(self, out: IO[bytes]) -> None:
        """Write them all, one a line, with a comma between them as in a JSON array."""


class Report(msgspec.Struct):
    """Everything a renderer needs; the requests stream from a spool."""

    tool_version: str
    inputs: list[InputInfo]
    sessions: list[Session]
    totals: Totals
    requests: RequestLines
    findings: list[Finding]
    not_evaluated: list[NotEvaluated]
    rules: list[RuleInfo]
    interrupted: bool = False
    restart: Restart | None = None
    ignored: list[str] = msgspec.field(default_factory=list)
    """Codes of the rules that were switched off."""
