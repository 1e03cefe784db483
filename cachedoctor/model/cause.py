"""One cause over all servers: forty logs with the same fault have one cause, and a list of servers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachedoctor.model.bounds import Code, Count, Long, LongMs, Name
from cachedoctor.model.finding import CONFIDENCE_ORDER, SEVERITY_ORDER, Confidence, Finding, Severity


class Cause(msgspec.Struct):
    """Findings of one code and key, of every server that has one."""

    code: Code
    name: Name
    severity: Severity
    """The highest."""
    confidence: Confidence
    """The highest: a server whose log proves it does so for itself; each finding has its own."""
    findings: list[Count]
    """Indexes of the findings, in their order: the costliest first."""
    servers: list[str]
    """Servers as the wrapper names them, else inputs; each once, in the order of the findings."""
    count: Count
    """Requests that it hit, on all of them."""
    tokens: Long
    """What the fixes would have saved."""
    ms: LongMs | None
    """Milliseconds; None where no log has timings."""


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """Put the findings of one cause together; causes stand where the first of their findings does."""
    groups: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
    for at, finding in enumerate(findings):
        groups.setdefault((finding.code, finding.key), []).append((at, finding))
    return [_cause(found) for found in groups.values()]


def _cause(found: list[tuple[int, Finding]]) -> Cause:
    findings = [finding for _, finding in found]
    first = findings[0]
    times = [f.cost.ms for f in findings if f.cost.ms is not None]
    return Cause(
        first.code,
        first.name,
        max((f.severity for f in findings), key=lambda s: SEVERITY_ORDER[s]),
        max((f.confidence for f in findings), key=lambda c: CONFIDENCE_ORDER[c]),
        [at for at, _ in found],
        list(dict.fromkeys(name for f in findings if (name := f.origin or f.path))),
        sum(f.count for f in findings),
        sum(f.cost.tokens for f in findings),
        round(sum(times), 3) if times else None,
    )
