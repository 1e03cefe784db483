"""Findings about whole inputs and sessions, and rules that could not be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.kit import ANY, AnyRule, RequestRule, Rule, SessionFinding
from cachedoctor.diagnosis.rules.measured import shared_beginnings
from cachedoctor.diagnosis.rules.registry import OF_COMPUTED_TWICE, Broken
from cachedoctor.doctor.faults import described
from cachedoctor.doctor.findings.groups import Key
from cachedoctor.model import Cost, Evidence, Finding, NotEvaluated, PromptDiff, Restart, Session, option_rows
from cachedoctor.model.terms import OF_CLIENTS
from cachedoctor.report.words.traffic_words import LLAMA


def not_evaluated(
    rules: Sequence[AnyRule],
    broken: Sequence[Broken],
    failures: dict[str, str],
    sessions: Sequence[Session],
    *,
    lost: bool,
) -> list[NotEvaluated]:
    """Return them in the order of their codes.

    Args:
        rules: all that could be loaded.
        broken: those that could not.
        failures: what rules failed with, by code; one that fails here is added.
        sessions: of all inputs.
        lost: some request lost tokens, or the log does not show; else there was nothing to explain.
    """
    bug = "report this as a bug"
    out = [NotEvaluated(b.code, b.name, f"the rule could not be loaded: {b.error}", bug) for b in broken]
    for rule in rules:
        try:
            need = _need(rule, sessions, lost)
        except Exception as error:  # one broken rule must not end the run
            failures.setdefault(rule.code, described(error))
        if rule.code in failures:
            need = f"the rule failed: {failures[rule.code]}", bug
        if need is not None:
            out.append(NotEvaluated(rule.code, rule.name, *need))
    return sorted(out, key=lambda left: left.code)


def _need(rule: AnyRule, sessions: Sequence[Session], lost: bool) -> tuple[str, str] | None:
    """Why a rule could not be checked in any session, and what would enable it."""
    if rule.engine in (ANY, LLAMA) and sessions and all(s.engine != LLAMA for s in sessions):
        client = rule.code.startswith(OF_CLIENTS) and rule.code not in shared_beginnings.OF_LLAMA_ALONE
        return shared_beginnings.unseen(sessions) if client else None
    if rule.engine == LLAMA and not lost and _of_loss(rule):
        return None
    needs = [rule.needs(s) for s in sessions if s.engine == rule.engine and (s.n_requests or s.engine != LLAMA)]
    return needs[0] if needs and all(need is not None for need in needs) else None


def _of_loss(rule: AnyRule) -> bool:
    """Whether a rule has nothing to say where nothing was lost; then a command line is of no use either."""
    return not isinstance(rule, RequestRule) or OF_COMPUTED_TWICE.issuperset(rule.on)


def session_finding(key: Key, rule: Rule, note: SessionFinding, evidence: list[Evidence]) -> Finding:
    """Make a finding of no request, of which the log does not show what it cost."""
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
