"""Rules that these logs could not have shown, and what would enable them."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.doctor.faults import described
from cachedoctor.model import NotEvaluated, Session
from cachedoctor.model.terms import OF_CLIENTS
from cachedoctor.report.words.server_words import LLAMA
from cachedoctor.rules import prompt_logs
from cachedoctor.rules.base import AnyRule, RequestRule
from cachedoctor.rules.registry import Broken
from cachedoctor.rules.triggers import OF_COMPUTED_TWICE


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
        lost: some request lost tokens, or the log does not tell; else there was nothing to explain.
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
    """Why a rule could not be evaluated in any session, and what would enable it."""
    if rule.engine == LLAMA and sessions and all(s.engine != LLAMA for s in sessions):
        client = rule.code.startswith(OF_CLIENTS) and rule.code not in prompt_logs.OF_LLAMA_ALONE
        return prompt_logs.unseen(sessions) if client else None
    if rule.engine == LLAMA and not lost and _of_loss(rule):
        return None
    needs = [rule.needs(s) for s in sessions if s.engine == rule.engine and (s.n_requests or s.engine != LLAMA)]
    return needs[0] if needs and all(need is not None for need in needs) else None


def _of_loss(rule: AnyRule) -> bool:
    """Whether a rule has nothing to say where nothing was lost; then a command line is of no use either."""
    return not isinstance(rule, RequestRule) or OF_COMPUTED_TWICE.issuperset(rule.on)
