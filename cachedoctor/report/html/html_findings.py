"""The findings as the page shows them: numbers in words, links only where they are links. Knows findings and rows."""

from __future__ import annotations

from dataclasses import dataclass

from cachedoctor.model import Evidence, Finding, Fix, RequestRow, Totals
from cachedoctor.report.html.prompt_strip import Strip, strip
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import do_now, headlines
from cachedoctor.report.words.cause_words import Shared
from cachedoctor.report.words.do_now import DoNow
from cachedoctor.report.words.numbers import duration, number, percent, spent_tokens
from cachedoctor.report.words.sentences import leading

_WHY = 300
"""Characters of why it is so, where the whole stands below."""
_LINE = 600
"""Characters of a log line shown."""


@dataclass(slots=True)
class Line:
    """A line of the log, or (without a number) the name of the file that the next ones stand in."""

    number: str
    text: str
    label: str
    primary: bool


@dataclass(slots=True)
class Shown:
    """One finding, ready to be written."""

    finding: Finding
    anchor: str
    headline: str
    """What is the matter, and its share of the tokens, as every format says it."""
    sentence: str
    """The same without the share."""
    claim: str
    more: str
    """What else the claim says, behind the sentence; empty where that is nothing."""
    why: str
    """The first sentences of why it is so."""
    facts: list[tuple[str, str]]
    """What it cost, in words: what, how much."""
    where: str
    lines: list[Line]
    strip: Strip | None
    references: list[tuple[str, bool]]
    """Text, and whether it is an address."""
    page: str | None
    """Address of the rule's page."""
    fixes: list[DoNow]
    """What to do, in the order in which it is to be tried."""
    many: str
    """How many servers have it, where they are several."""


def shown(
    one: Shared,
    number_: int,
    rows: dict[int, RequestRow],
    totals: Totals,
    page: str | None,
    summary: str = "",
    fix: Fix | None = None,
) -> Shown:
    """Prepare one cause, which was quoted before.

    Args:
        number_: its place among the causes, from 1.
        rows: its requests by their index.
        totals: sums of the whole log, to say the share of it.
        page: address of its rule's page.
        summary: what its rule is about.
        fix: of its server.
    """
    finding = one.finding
    primary, said = finding.primary, headlines.claim(finding, summary)
    return Shown(
        finding=finding,
        anchor=f"finding-{number_}",
        headline=sentence(headlines.headline(finding, totals, 0, summary)),
        sentence=sentence(said.sentence),
        claim=sentence(finding.claim),
        more=sentence(said.more),
        why=leading(finding.why, _WHY),
        facts=[*([("Servers", one.servers)] if one.servers else []), *_facts(finding, totals.prompt_ms)],
        where="" if primary is None else _place(primary),
        lines=_lines(finding.evidence, primary),
        strip=strip(one.first, rows),
        references=[(reference, is_address(reference)) for reference in finding.references],
        page=page if page is not None and is_address(page) else None,
        fixes=_fixes(one.first, fix),
        many=one.many,
    )


def _fixes(finding: Finding, fix: Fix | None) -> list[DoNow]:
    """Options that stand alone say where they belong."""
    return [
        one._replace(text=f"{do_now.belongs(finding)} {one.text}") if one.options and not one.steps else one
        for one in do_now.every(finding, fix)
    ]


def is_address(text: str) -> bool:
    """Whether it may be a link."""
    return text.startswith(("https://", "http://"))


def sentence(text: str) -> str:
    """Begin with a capital, as a headline does."""
    text = cut(text, 1000)
    return text[:1].upper() + text[1:]


def _facts(finding: Finding, prompt_ms: float) -> list[tuple[str, str]]:
    cost = finding.cost
    # Of a finding about a whole server "seen 1" would say nothing.
    facts = (
        [("Requests" if finding.requests else "Seen", number(finding.count))]
        if finding.count > 1 or finding.requests
        else []
    )
    if cost.tokens or cost.at_most:
        facts.insert(0, ("Computed again", spent_tokens(cost)))
    if cost.tokens and cost.ms is not None:
        facts.insert(1, ("Prompt time", f"{'' if cost.ms_from == 'depth' else 'about '}{duration(cost.ms)}"))
        if prompt_ms:
            facts.insert(2, ("Of all prompt time", percent(min(cost.ms, prompt_ms), prompt_ms)))
    return facts


def _lines(evidence: list[Evidence], primary: Evidence | None) -> list[Line]:
    """Give them in the order of the log, the file of the proof first."""
    home = primary.path if primary else ""
    lines, path = [], None
    for e in sorted(evidence, key=lambda e: (e.path != home, e.path, e.line)):
        if e.path != path:
            lines.append(Line("", name(e.path), "", False))
            path = e.path
        lines.append(Line(str(e.line), cut(e.text, _LINE), e.label, e is primary))
    return lines


def name(path: str) -> str:
    """Name an input."""
    return "standard input" if path == "-" else path


def _place(evidence: Evidence) -> str:
    return f"{name(evidence.path)}:{evidence.line}"
