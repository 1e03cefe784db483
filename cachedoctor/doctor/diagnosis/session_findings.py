"""What is said of whole inputs and sessions rather than of requests, and the one restart that shows more."""

from __future__ import annotations

from typing import Any

from cachedoctor.doctor.diagnosis.groups import Key
from cachedoctor.model import Cost, Evidence, Finding, NotEvaluated, PromptDiff, Restart, Session, option_rows
from cachedoctor.rules import advice
from cachedoctor.rules.base import AnyRule, Rule, SessionFinding


def session_finding(key: Key, rule: Rule, note: SessionFinding, evidence: list[Evidence]) -> Finding:
    """Make a finding of no request, of which the log does not say what it cost."""
    words = note.words
    _, cause, path, origin = key
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=note.severity,
        confidence=note.confidence,
        claim=words.claim,
        requests=[],
        count=1,
        evidence=evidence,
        cost=Cost(0, None),
        why=words.why,
        ruled_out=words.ruled_out,
        diff=None if note.difference is None else short(note.difference),
        remedies=words.remedies,
        references=words.references,
        path=path,
        origin=origin,
        key=cause,
    )


def short(difference: PromptDiff) -> dict[str, Any]:
    """Where the prompts diverge, as the finding carries it; the excerpt stays out."""
    return {
        "a": difference.a,
        "b": difference.b,
        "first": difference.first,
        "common_prefix_tokens": difference.common_prefix_tokens,
        "exact": difference.exact,
    }


def restart(rules: list[AnyRule], sessions: list[Session], left: list[NotEvaluated]) -> Restart | None:
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
    if not found.options:
        return None
    enabled = sorted(code for code, want in wanted.items() if want in found.shows)
    return Restart("\n".join(option_rows(found.options)), found.text, enabled, found.options)
