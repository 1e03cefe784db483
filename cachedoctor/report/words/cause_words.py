"""One cause on many servers, said once: the words of its costliest finding, what all cost, and where.

``38 of 40 servers: vllm-0, vllm-1, vllm-2 and 35 more``. Knows findings and sessions; knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.model import Cause, Cost, Finding, Report, causes
from cachedoctor.model.finding import SEVERITY_ORDER
from cachedoctor.report.words.numbers import number

_NAMED = 3
"""Servers called by their names."""
_FEW = 2
"""Servers of which the proof names the one that is meant; among more it is easily taken for all."""


class Shared(NamedTuple):
    """A cause of one server or of many."""

    finding: Finding
    """The costliest one, with the counts and the cost of all."""
    first: Finding
    """The same with its own."""
    servers: str
    """How many servers have it, and which; empty where that is one of few, which the proof names."""

    @property
    def many(self) -> str:
        """How many servers have it: ``38 of 40 servers``; empty where ``servers`` is."""
        return self.servers.partition(":")[0]


def shared(report: Report, findings: Sequence[Finding]) -> list[Shared]:
    """Put findings of one cause together, the most severe and costliest first."""
    found: list[Shared] = []
    several, many = None, False
    for cause in causes(findings):
        own = [findings[at] for at in cause.findings]
        first = max(own, key=lambda f: f.cost.tokens)  # of equal ones the first
        several = several or _servers(report)
        if len({(f.path, f.origin) for f in own}) == 1:
            alone = _alone(first, several) if first.origin is not None and len(several) > _FEW else ""
            found += [Shared(f, f, alone) for f in own]
            continue
        many = True
        summed = msgspec.structs.replace(
            first, severity=cause.severity, count=cause.count, cost=_cost(cause, own),
            requests=[at for f in own for at in f.requests],
        )  # fmt: skip
        found.append(Shared(summed, first, _named(own, several)))
    if many:  # what many servers lose together may be more than what one of them does
        found.sort(key=lambda one: (-SEVERITY_ORDER[one.finding.severity], -one.finding.cost.tokens))
    return found


def _cost(cause: Cause, own: list[Finding]) -> Cost:
    most = sum(f.cost.at_most if f.cost.at_most is not None else f.cost.tokens for f in own)
    by = {f.cost.ms_from for f in own if f.cost.ms is not None}
    ms = cause.ms if all(f.cost.ms is not None for f in own) else None  # a part is no sum
    return Cost(
        cause.tokens, ms, "depth" if by == {"depth"} else "mean" if by else None, most if most > cause.tokens else None
    )


def _servers(report: Report) -> dict[tuple[str | None, str | None], str]:
    """Names of all servers: as the wrapper says, with the input where several inputs have that name; else the input."""
    known = dict.fromkeys((session.path, session.origin) for session in report.sessions)
    origins = [origin for _, origin in known]
    return {
        (path, origin): f"{path} {origin}" if origin and origins.count(origin) > 1 else origin or path or ""
        for path, origin in known
    }


def _alone(finding: Finding, known: dict[tuple[str | None, str | None], str]) -> str:
    return f"1 of {number(len(known))} servers: {known.get((finding.path, finding.origin)) or finding.origin}"


def _named(own: list[Finding], known: dict[tuple[str | None, str | None], str]) -> str:
    """Name servers, the costliest first."""
    ranked = sorted(own, key=lambda f: -f.cost.tokens)
    names = list(dict.fromkeys(known.get((f.path, f.origin)) or f.origin or f.path or "" for f in ranked))
    if len(names) < 2:
        return ""
    more = f" and {number(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    of = f"all {number(len(names))}" if len(names) >= len(known) else f"{number(len(names))} of {number(len(known))}"
    return f"{of} servers: {', '.join(names[:_NAMED])}{more}"
