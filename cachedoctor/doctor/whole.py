"""What is said of whole inputs and sessions rather than of requests: notes, and the one restart that shows more.

Knows rules as such, not one of them by name.
"""

from __future__ import annotations

from cachedoctor.doctor.groups import Key
from cachedoctor.model import Confidence, Cost, Evidence, Finding, NotEvaluated, Restart, Session, Severity
from cachedoctor.rules import advice
from cachedoctor.rules.base import Rule, Words


def noted(
    key: Key,
    rule: Rule,
    words: Words,
    evidence: list[Evidence],
    severity: Severity = "note",
    confidence: Confidence = "high",
) -> Finding:
    """Make a finding of no request, of which the log does not say what it cost."""
    _, cause, path, origin = key
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=severity,
        confidence=confidence,
        claim=words.claim,
        requests=[],
        count=1,
        evidence=evidence,
        cost=Cost(0, None),
        why=words.why,
        ruled_out=words.ruled_out,
        diff=None,
        remedies=words.remedies,
        references=words.references,
        path=path,
        origin=origin,
        key=cause,
    )


def restart(rules: list[Rule], sessions: list[Session], left: list[NotEvaluated]) -> Restart | None:
    """Return the one restart that enables most of what is ``left``; None where no option of the build helps.

    The server that is restarted is the one of the last session with requests.
    """
    codes = {rule.code for rule in left}
    wanted = {
        rule.code: advice.WANTS[rule.needs] for rule in rules if rule.code in codes and rule.needs in advice.WANTS
    }
    active = [s for s in sessions if s.n_requests]
    if not wanted or not active:
        return None
    found = advice.restart(active[-1], set(wanted.values()))
    if not found.command:
        return None
    return Restart(found.command, found.text, sorted(code for code, want in wanted.items() if want in found.shows))
