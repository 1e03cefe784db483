"""Finds the rules by the names of their files, and selects those to check for a request by its signs.

Checking signs is cheap: most causes need something that most requests do not have.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import msgspec

from cachedoctor.diagnosis.rules.kit import MIN_LOST, AnyRule, RequestRule, RuleContext
from cachedoctor.diagnosis.rules.names import find, identify, modules, names, pages, path
from cachedoctor.model.signs import MARKS_ALONE, MARKS_OF_LOSS, OF_LOSS, SignName

__all__ = ["Broken", "find", "load", "modules", "names", "pages"]


class Broken(msgspec.Struct):
    """A rule whose module could not be imported: the run continues without it."""

    code: str
    name: str
    error: str


def load() -> tuple[list[AnyRule], list[Broken]]:
    """Import every rule; one that fails is reported, not fatal."""
    rules, broken = [], []
    for module in modules():
        try:
            rules.append(importlib.import_module(f"cachedoctor.diagnosis.rules.{path(module).replace('/', '.')}").RULE)
        except Exception as error:  # a broken rule must not take the others with it
            broken.append(Broken(*identify(module), repr(error)))
    return in_order(rules), broken


def in_order(rules: list[AnyRule]) -> list[AnyRule]:
    """Order the rules so that each comes after the rules that take precedence over it or that it needs.

    Raises:
        ValueError: some take precedence over each other.
    """
    ordered: list[AnyRule] = []
    waiting = list(rules)
    open_codes = {rule.code for rule in waiting}
    while waiting:
        ready = next((rule for rule in waiting if open_codes.isdisjoint(_first(rule))), None)
        if ready is None:
            raise ValueError(f"rules wait for each other: {', '.join(rule.code for rule in waiting)}")
        ordered.append(ready)
        waiting.remove(ready)
        open_codes.remove(ready.code)
    return ordered


def _first(rule: AnyRule) -> tuple[str, ...]:
    """Codes that are asked before ``rule``."""
    if isinstance(rule, RequestRule):
        return rule.unless + rule.weak_unless + rule.only_with
    return rule.unless


OF_COMPUTED_TWICE: frozenset[SignName] = OF_LOSS | {"together"}
"""Signs of requests that share tokens with an earlier or a running one; without these, nothing was computed twice."""


def signs_of(s: RuleContext) -> tuple[SignName, ...]:
    """Return the signs of a request, always in the same order."""
    r = s.request
    found: list[SignName] = []
    if s.lost:
        found.append("loss")
        if s.difference is not None or r.seen.new_text is not None:
            found.append("text")
        if s.client_lost >= MIN_LOST:
            found.append("changed")
        if s.early:
            found.append("early")
        if s.slot_taken:
            found.append("taken")
        if s.late and s.server_lost >= MIN_LOST:
            found.append("stuck")
        if r.dropped is not None:
            found.append("dropped")
        if r.seen.checks or (r.seen.forced and (r.seen.held_positions or r.seen.oldest_position == 0)):
            found.append("looked")
        if r.seen.truncate_failed_at is not None:
            found.append("failed")
        if not MARKS_OF_LOSS.isdisjoint(r.marks):
            found += sorted(MARKS_OF_LOSS & r.marks.keys())
    if (r.seen.forced and s.too_small) or (r.outcome == "unknown" and s.symptom):
        found.append("symptom")
    if s.text_alone:
        found.append("bar")
    if r.seen.error is not None:
        found.append("error")
    if r.shifted or r.seen.truncated or (s.before and s.before[-1].request.shifted):
        found.append("shift")
    if r.partial:
        found.append("partial")
    if "restarted" in s.facts.settings:
        found.append("restarted")
    if r.together_tokens:
        found.append("together")
    if not MARKS_ALONE.isdisjoint(r.marks):
        found += sorted(MARKS_ALONE & r.marks.keys())
    return tuple(found)


PlannedRule = tuple[RequestRule, frozenset[str], frozenset[str], frozenset[str]]
"""A rule, and the codes that silence it, that silence a weak match of it, and one of which must have fired."""


class Plan:
    """Which rules are checked for which signs."""

    def __init__(self, rules: Iterable[AnyRule]) -> None:
        self._rules = [
            (rule, frozenset(rule.unless), frozenset(rule.weak_unless), frozenset(rule.only_with))
            for rule in rules
            if isinstance(rule, RequestRule)
        ]
        self._asked: dict[tuple[SignName, ...], list[PlannedRule]] = {}

    def rules(self, signs: tuple[SignName, ...]) -> list[PlannedRule]:
        """Rules for a request with these signs, in order; if its text is known, every rule of a loss."""
        found = self._asked.get(signs)
        if found is None:
            shown = frozenset(signs) | (OF_LOSS if "text" in signs else frozenset())
            found = self._asked[signs] = [planned for planned in self._rules if not shown.isdisjoint(planned[0].on)]
        return found
