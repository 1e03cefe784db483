"""The findings as the page shows them, with the place where two prompts diverge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Evidence, Finding, RequestRow
from cachedoctor.report.html.request_columns import box
from cachedoctor.report.report_view import FindingView
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words.numbers import count, duration, leading, number, percent, spent_tokens

WIDTH = 1000
_SIDE = late(r"\b(old|new): \.\.\.")
_BAR = " | "
_MOST = 200
"""Characters of a text shown."""


@dataclass(slots=True)
class Strip:
    """One divergence."""

    words: str
    place: str
    shared: str
    """The bar up to where the prompts diverge; empty when the lengths are unknown."""
    rest: str
    before: str
    old: str
    new: str
    old_name: str
    new_name: str


def strip(finding: Finding, rows: dict[int, RequestRow]) -> Strip | None:
    """Return the divergence that a finding shows, if it shows one. ``rows``: its requests by their index."""
    if finding.diff is not None and finding.diff["first"] is not None:
        return _compared(finding, rows)
    return _printed(finding, rows)


def _compared(finding: Finding, rows: dict[int, RequestRow]) -> Strip:
    diff: dict[str, Any] = finding.diff
    first, about = diff["first"], "" if diff["exact"] else "about "
    shared, whole = diff["common_prefix_tokens"], diff["b"].tokens
    row = None if diff["exact"] else _row_of(finding.primary, [rows[i] for i in finding.requests if i in rows])
    if row is not None and row.common_prefix_tokens is not None and row.prompt_tokens:
        # what the server counted, as the claim does: one place has one number
        about, shared, whole = "", row.common_prefix_tokens, row.prompt_tokens
    place = ", ".join(part for part in (first.place, f"line {first.line:,}", f"column {first.column:,}") if part)
    what = f"{first.kind}: {first.field}" if first.field and first.field != first.kind else first.kind
    return Strip(
        _shared(shared, whole, about), f"{what} at {place}", *_bars(shared, whole),
        "", _line(first.a), _line(first.b), _short(diff["a"].path), _short(diff["b"].path),
    )  # fmt: skip


def _printed(finding: Finding, rows: dict[int, RequestRow]) -> Strip | None:
    sides: dict[str, tuple[str, str]] = {}
    for evidence in finding.evidence:
        found = _SIDE.search(evidence.text)
        before, bar, after = evidence.text[found.end() :].partition(_BAR) if found else ("", "", "")
        if found and bar:
            sides.setdefault(found[1], (before, after))
    if len(sides) < 2:
        return None
    row = _row_of(finding.primary, [rows[i] for i in finding.requests if i in rows])
    shared, whole = (row.common_prefix_tokens, row.prompt_tokens) if row is not None else (None, None)
    words, bars = ("", ("", "")) if shared is None or not whole else (_shared(shared, whole), _bars(shared, whole))
    return Strip(
        words, "", *bars, _line(sides["new"][0]), _line(sides["old"][1]), _line(sides["new"][1]),
        "the slot's content", "the new prompt",
    )  # fmt: skip


def _row_of(line: Evidence | None, rows: list[RequestRow]) -> RequestRow | None:
    """The request whose lines contain the primary evidence."""
    for row in rows:
        if line is None or (row.session, row.path) != (line.session, line.path):
            continue
        if row.first_line <= line.line <= row.last_line:
            return row
    return None


def _shared(shared: int, whole: int, about: str = "") -> str:
    if not whole:
        return ""
    return f"The prompts share {about}{shared:,} of {count(whole, 'token')} ({percent(min(shared, whole), whole)})"


def _bars(shared: int, whole: int) -> tuple[str, str]:
    if not whole:
        return "", ""
    x = WIDTH * min(shared, whole) / whole
    return box(0, 0, x, 14), box(x, 0, WIDTH - x, 14)


def _short(path: str) -> str:
    """Shorten a path to its end, which identifies the prompt."""
    return cut(path.replace("\\", "/").rpartition("/")[2], 60)


def _line(text: str) -> str:
    return cut(text.replace("\n", "↵"), _MOST)


_WHY = 300
"""Characters of the reason, if the full text is below."""
_LINE = 600
"""Characters of a log line shown."""


@dataclass(slots=True)
class EvidenceLine:
    """A line of the log, or (without a number) the name of the file that the next ones are in."""

    number: str
    text: str
    label: str
    primary: bool


@dataclass(slots=True)
class FindingHtml:
    """One cause, ready to be written."""

    view: FindingView
    finding: Finding
    anchor: str
    headline: str
    """The problem, and its share of the tokens, in the words of every format."""
    sentence: str
    """The same without the share."""
    claim: str
    more: str
    """Further content of the claim after the sentence; empty if none."""
    why: str
    """The first sentences of why it is so."""
    facts: list[tuple[str, str]]
    """What it cost, in words: what, how much."""
    where: str
    lines: list[EvidenceLine]
    strip: Strip | None
    references: list[tuple[str, bool]]
    """Text, and whether it is an address."""
    page: str | None
    """Address of the rule's page."""
    has_same_fix: bool
    """The fix of the first cause is its fix, too."""


def shown(
    one: FindingView, number_: int, rows: dict[int, RequestRow], pages: str | None, *, has_same_fix: bool = False
) -> FindingHtml:
    """Prepare one cause.

    Args:
        number_: its place among the causes, from 1.
        rows: its requests by their index.
        pages: what comes before the address of a rule's page; None without links.
        has_same_fix: whether the fix of the first cause is its fix, too.
    """
    finding, primary = one.finding, one.finding.primary
    page = None if pages is None or one.url is None else pages + one.url
    return FindingHtml(
        view=one,
        finding=finding,
        anchor=f"finding-{number_}",
        headline=sentence(one.headline()),
        sentence=sentence(one.claim.sentence),
        claim=sentence(finding.claim),
        more=sentence(one.claim.more),
        why=leading(finding.why, _WHY),
        facts=_facts(one),
        where="" if primary is None else f"{name(primary.path)}:{primary.line}",
        lines=_lines(one),
        strip=strip(one.first, rows),
        references=[(reference, is_address(reference)) for reference in finding.references],
        page=page if page is not None and is_address(page) else None,
        has_same_fix=has_same_fix,
    )


def is_address(text: str) -> bool:
    """Whether it may be a link."""
    return text.startswith(("https://", "http://"))


def sentence(text: str) -> str:
    """Begin with a capital, as a headline does."""
    text = cut(text, 1000)
    return text[:1].upper() + text[1:]


def _facts(one: FindingView) -> list[tuple[str, str]]:
    cost, prompt_ms = one.finding.cost, one.totals.prompt_ms if one.totals is not None else 0.0
    facts = [("Servers", one.servers)] if one.servers else []
    if cost.tokens or cost.at_most:
        facts.append(("Recomputed", spent_tokens(cost)))
    if cost.tokens and cost.ms is not None:
        facts.append(("Prompt time", f"{'' if cost.ms_from == 'depth' else 'about '}{duration(cost.ms)}"))
        if prompt_ms:
            facts.append(("Of all prompt time", percent(min(cost.ms, prompt_ms), prompt_ms)))
    # Of a finding about a whole server "seen 1" would say nothing.
    if one.finding.count > 1 or one.finding.requests:
        facts.append(("Requests" if one.finding.requests else "Seen", number(one.finding.count)))
    return facts


def _lines(one: FindingView) -> list[EvidenceLine]:
    lines, path = [], None
    for e in one.evidence:
        if e.path != path:
            lines.append(EvidenceLine("", name(e.path), "", False))
            path = e.path
        lines.append(EvidenceLine(str(e.line), cut(e.text, _LINE), e.label, e is one.finding.primary))
    return lines


def name(path: str) -> str:
    """Name an input."""
    return "standard input" if path == "-" else path
