"""The first row about a finding: what is the matter, and which share of the tokens was computed again for it.

``Claude Code's billing header changes between requests (cch): 74 % of all prompt tokens were computed again``
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cachedoctor.model import Cost, Finding, Totals
from cachedoctor.report.words.numbers import count, duration, number, spent_tokens
from cachedoctor.report.words.sentences import capital

CONFIDENCE = {"high": "sure", "medium": "likely", "low": "possible"}
"""How sure a finding is."""
_CHARGED = re.compile(
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
