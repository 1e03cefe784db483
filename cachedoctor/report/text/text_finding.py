"""One finding as text: claim, evidence, cost, why, what it is not, fix. Knows Finding and Page only."""

from __future__ import annotations

from cachedoctor.model import Finding
from cachedoctor.report.text.page import Link, Page, Part
from cachedoctor.report.words.numbers import count, duration, number, percent, spent_tokens

SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_GUTTER = "blue"
_KEY = "bold"


def show(page: Page, finding: Finding, where: str = "", prompt_ms: float = 0.0, link: str | None = None) -> None:
    """Write ``finding``.

    Args:
        where: which server of the input, when there are several.
        prompt_ms: prompt time of the whole log, to say the share of it.
        link: address of the page of the rule, where the output knows links.
    """
    page.prose([heading(finding, link), f" {finding.name}: "], finding.claim, 2, "bold")
    if finding.evidence:
        _evidence(page, finding, SEVERITY_STYLE[finding.severity], where)
    _labelled(page, "cost", cost(finding, prompt_ms))
    _labelled(page, "why", finding.why)
    _labelled(page, "confidence", finding.confidence)
    for other in finding.excluded:
        _labelled(page, "not this", f"{other.name}: {other.why}")
    for other in finding.still_possible:
        _labelled(page, "possible", f"{other.name}: {other.why}")
    for remedy in finding.remedies:
        _labelled(page, "fix", remedy.text)
        for command in remedy.commands:
            page.row("      ", (command, "green"))
    for reference in finding.references:
        _labelled(page, "see", reference)
    page.row("  = ", ("more: ", _KEY), f"cachedoctor explain {finding.code}")


def heading(finding: Finding, link: str | None = None) -> Part:
    """Name severity and code, ``warning[CD101]``."""
    words, style = f"{finding.severity}[{finding.code}]", SEVERITY_STYLE[finding.severity]
    return (words, style) if link is None else Link(words, style, link)


def _labelled(page: Page, key: str, words: str) -> None:
    if words:
        page.prose(["  = ", (f"{key}: ", _KEY)], words, 4)


def cost(finding: Finding, prompt_ms: float) -> str:
    """Say what the fix would have saved; nothing when that is nothing."""
    spent = finding.cost
    if not spent.tokens and not spent.at_most:
        return ""
    words = f"{spent_tokens(spent)} recomputed in {count(finding.count, 'request')}"
    if spent.ms is None:
        return words
    share = f", {percent(min(spent.ms, prompt_ms), prompt_ms)} of all prompt time" if prompt_ms else ""
    if spent.ms_from == "depth":
        return f"{words}, {duration(spent.ms)} at the speed measured at that depth{share}"
    return f"{words}, about {duration(spent.ms)}{share}"


def _evidence(page: Page, finding: Finding, style: str, where: str) -> None:
    """Write the lines in the order of the log; the one that proves the claim has ``>`` before and ``^`` below it."""
    evidence, primary = finding.evidence, finding.primary or finding.evidence[0]
    wide = max(len(str(e.line)) for e in evidence)
    blank = " " * (wide + 2)
    page.row((f"{' ' * wide}--> ", _GUTTER), location(primary.path, primary.line), f" ({where})" if where else "")
    page.row((f"{blank} |", _GUTTER))
    for line in sorted(evidence, key=lambda e: (e.path != primary.path, e.path, e.line)):
        if line.path != primary.path:
            page.row((f"{' ' * wide}::: ", _GUTTER), location(line.path, line.line))
        mark, below, tint = (">", "^ ", style) if line is primary else (" ", "- ", _GUTTER)
        gutter = (f"{blank} | ", _GUTTER)
        page.excerpt([(f"{mark} {line.line:>{wide}} | ", tint)], [gutter], line.text, page.width - wide - 5)
        page.prose([gutter, (below, tint)], line.label, wide + 7, style if line is primary else "")
    page.row((f"{blank} |", _GUTTER))


def location(path: str, line: int | None = None) -> str:
    """Name a place as editors and terminals find it, ``path:line``."""
    name = "<stdin>" if path == "-" else path
    return name if line is None else f"{name}:{line}"


def severities(findings: list[Finding]) -> str:
    """Count findings by severity, ``2 findings: 1 error, 1 warning``."""
    tally = {word: sum(f.severity == word for f in findings) for word in ("error", "warning", "note")}
    kinds = ", ".join(count(n, word) for word, n in tally.items() if n)
    return f"{number(len(findings))} {'finding' if len(findings) == 1 else 'findings'}: {kinds}"
