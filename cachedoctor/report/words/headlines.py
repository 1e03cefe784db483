"""The first row about a finding, and one cause across many servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Cause, Cost, Finding, Report, Totals, causes
from cachedoctor.model.finding import SEVERITY_ORDER
from cachedoctor.report.words.numbers import capital, count, duration, number, spent_tokens

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


CONFIDENCE = {"high": "sure", "medium": "likely", "low": "possible"}
"""How sure a finding is."""
_CHARGED = late(
    r"[:,;] (?:[\d,]+ requests?, )?(?:at most )?[\d,]+ (?:to [\d,]+ )?tokens recomputed\b(?: over [\d,]+ requests?)?"
)
"""What a claim says of its cost, which stands in rows of its own."""
_LONG = 130
"""Characters of a claim that is too long for a headline: the rule says it in a few words."""


class Claim(NamedTuple):
    """What a finding claims, in parts."""

    sentence: str
    """What is the matter, without its cost."""
    more: str
    """What else the claim says, for the proof; empty where that is nothing."""


def claim(finding: Finding, summary: str = "") -> Claim:
    """Return what a finding claims.

    Args:
        summary: what its rule is about, for claims that are too long for a headline.
    """
    found = _CHARGED.search(finding.claim)
    start, end = (len(finding.claim),) * 2 if found is None else found.span()
    said, rest = finding.claim[:start], finding.claim[end:]
    if summary and len(said) > _LONG:
        return Claim(summary, said + rest)
    return Claim(capital(said), rest.lstrip(",;: ").removeprefix("and "))


def share(cost: Cost, totals: Totals | None, brief: bool = False) -> str:
    """Say how much was computed again; nothing where that is nothing, or not known."""
    again = "computed again" if brief else "were computed again"
    if cost.at_most is not None or (cost.tokens and (totals is None or totals.prompt_tokens < cost.tokens)):
        return f"{spent_tokens(cost)} {again}"
    if not cost.tokens or totals is None:
        return ""
    part = 100 * cost.tokens / totals.prompt_tokens
    said = "less than 1 %" if part < 1 else "all" if cost.tokens == totals.prompt_tokens else f"{min(part, 99):.0f} %"
    return f"{said} {again}" if brief else f"{said} of all prompt tokens {again}"


def headline(finding: Finding, totals: Totals | None, room: int, summary: str = "") -> str:
    """Return the first row; in fewer words where ``room`` cells do not hold it."""
    said = claim(finding, summary).sentence
    forms = [f"{said}: {words}" if words else said for words in (share(finding.cost, totals, b) for b in (False, True))]
    return next((form for form in forms if len(form) <= room), forms[0])


def one_row(finding: Finding, totals: Totals | None, room: int, summary: str = "", servers: str = "") -> str:
    """Return the most that ``room`` cells hold whole of what is the matter, its share, and how many servers have it."""
    said = claim(finding, summary).sentence
    again = share(finding.cost, totals, brief=True)
    of = f" ({servers.partition(':')[0]})" if servers else ""
    forms = [f"{words}: {again}" for words in (said, summary) if words and again] if again else []
    forms += [words for words in (said, summary) if words]
    return next((form + end for end in (of, "") for form in forms if len(form + end) <= room), forms[-1])


def cost(finding: Finding, totals: Totals | None) -> str:
    """Say what was computed again, of how much: tokens, time, requests; nothing when that is nothing."""
    spent = finding.cost
    if not spent.tokens and not spent.at_most:
        return ""
    tokens = spent_tokens(spent)
    if totals is not None and totals.prompt_tokens >= spent.tokens and spent.at_most is None:
        tokens = f"{number(spent.tokens)} of {count(totals.prompt_tokens, 'prompt token')}"
    parts = [tokens]
    if spent.ms is not None:
        about = "" if spent.ms_from == "depth" else "about "
        whole = f" of {duration(totals.prompt_ms)}" if totals is not None and totals.prompt_ms >= spent.ms else ""
        parts.append(f"{about}{duration(spent.ms)}{whole}")
    if finding.requests:
        of = f"{number(finding.count)} of " if totals is not None and totals.requests >= finding.count else ""
        parts.append(f"in {of}{count(totals.requests if of and totals else finding.count, 'request')}")
    return ", ".join(parts)


def rule(finding: Finding) -> str:
    """Name the rule and how sure it is: ``billing-header, sure``."""
    return f"{finding.name}, {CONFIDENCE[finding.confidence]}"
