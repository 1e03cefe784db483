"""One request, and one finding, in a few words: for rows of a live view. Knows the nouns; knows no terminal."""

from __future__ import annotations

from cachedoctor.model import Finding, Judged, Request
from cachedoctor.report.words.numbers import count, duration, number


def lost(request: Request) -> int:
    """Give the tokens that could have been reused and were not; the few at the end of a reused prompt do not count."""
    return request.lost_tokens or 0 if request.outcome in ("partial", "reprocessed") else 0


def outcome(judged: Judged) -> str:
    """Say what a request lost, for which causes, and how it ended."""
    request, said = judged.request, judged.verdict
    words = {"cold": "nothing to reuse", "unknown": "reuse unknown"}.get(request.outcome, request.outcome)
    codes = f" ({', '.join(said.codes)})" if said.codes else ""
    return f"lost {count(lost(request), 'token')}{codes}, {words}" if lost(request) else words + codes


def tokens(value: int | None) -> str:
    """Write a count that may be unknown."""
    return "unknown" if value is None else number(value)


def sentence(judged: Judged, origin: str | None) -> str:
    """Say of an ended request where it stands in the log and what became of its prompt."""
    request = judged.request
    path = "<stdin>" if request.path == "-" else request.path
    place = f"{path}:{request.first_line}: {f'{origin}, ' if origin else ''}slot {request.slot}, task {request.task}"
    spent = f" in {duration(request.prompt_ms)}" if request.prompt_ms else ""
    counts = (
        f"{tokens(request.prompt_tokens)} prompt tokens = {tokens(request.cached_tokens)} reused"
        f" + {tokens(request.processed_tokens)} computed{spent}"
    )
    return f"{place}: {counts}; {outcome(judged)}"


def cost(finding: Finding) -> str:
    """Say what a finding costs so far."""
    requests = count(finding.count, "request") if finding.requests else ""
    spent = duration(finding.cost.ms) if finding.cost.tokens and finding.cost.ms else ""
    lost = count(finding.cost.tokens, "token") if finding.cost.tokens else ""
    return ", ".join(filter(None, (lost, spent, requests)))


def fix(finding: Finding) -> str:
    """Give the first line of what to do; empty when there is nothing to be done."""
    return finding.remedies[0].text.split("\n")[0] if finding.remedies else ""
