"""What the rules looked at, where they found nothing: requests of one engine, measurements of another.

Knows which rules are about which engine. Knows no rule and no format.
"""

from __future__ import annotations

from cachedoctor.model import Report
from cachedoctor.report.words.measurements import looked_at
from cachedoctor.report.words.numbers import count, number
from cachedoctor.report.words.server_words import LLAMA, program, rules_of


def checked(report: Report) -> str:
    """Say how many rules checked what; nothing where there was nothing to check."""
    parts = []
    if report.totals.requests:
        parts.append(f"{_rules(report, LLAMA)} checked {count(report.totals.requests, 'request')}")
    for name in dict.fromkeys(s.engine for s in report.sessions if s.engine != LLAMA):
        sessions = [s for s in report.sessions if s.engine == name]
        seen, called = looked_at(sessions), program(sessions[0])
        known = rules_of(name, {rule.code for rule in report.rules})
        words = f"{_rules(report, name)} for {called} checked {seen}"
        parts.append(words if known else f"No rule is about {called} ({seen})")
    return "; ".join(parts)


def numbered(report: Report) -> str:
    """Say how lines are numbered, where that is not from the top of the input; nothing where it is."""
    kinds = {info.counted for info in report.inputs if info.counted is not None}
    said = []
    if "newest first" in kinds:
        said.append("The newest line came first: lines are numbered from the end, as tac gives them.")
    if "records" in kinds:
        said.append("Lines are the records of the JSON document, numbered in the order of time.")
    return " ".join(said)


def imitated(report: Report) -> str:
    """Say how many lines inside printed prompts looked like a server's; nothing without any."""
    lines = sum(info.imitations for info in report.inputs)
    verb = "lines" if lines != 1 else "line"
    return f"{number(lines)} {verb} inside a prompt looked like the server's." if lines else ""


def _rules(report: Report, name: str) -> str:
    closed = {rule.code for rule in report.not_evaluated}.union(report.ignored)
    return count(len(rules_of(name, {rule.code for rule in report.rules}) - closed), "rule")
