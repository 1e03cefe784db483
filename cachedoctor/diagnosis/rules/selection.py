"""The signs that a request shows, and the rules that are asked about them.

A cheap look before the rules' own: most causes need something that most requests do not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cachedoctor.diagnosis.rules.kit import MIN_LOST, AnyRule, RequestRule, RuleContext
from cachedoctor.model.signs import MARKS_ALONE, MARKS_OF_LOSS, OF_LOSS, SignName

OF_COMPUTED_TWICE: frozenset[SignName] = OF_LOSS | {"together"}
"""Signs that only a request shows some of whose tokens another one had, or was computing: without any of these,
nothing was computed twice."""


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
    if s.too_small or (s.request.outcome == "unknown" and s.symptom):
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


class PlannedRule(NamedTuple):
    """A rule with what silences it."""

    rule: RequestRule
    unless: frozenset[str]
    weak_unless: frozenset[str]
    only_with: frozenset[str]


class Plan:
    """Which rules are asked about which signs."""

    def __init__(self, rules: Iterable[AnyRule]) -> None:
        self._rules = [
            PlannedRule(rule, frozenset(rule.unless), frozenset(rule.weak_unless), frozenset(rule.only_with))
            for rule in rules
            if isinstance(rule, RequestRule)
        ]
        self._asked: dict[tuple[SignName, ...], list[PlannedRule]] = {}

    def rules(self, signs: tuple[SignName, ...]) -> list[PlannedRule]:
        """Rules for a request with these signs, in their order; where its text is known, every rule of a loss."""
        found = self._asked.get(signs)
        if found is None:
            shown = frozenset(signs) | (OF_LOSS if "text" in signs else frozenset())
            found = self._asked[signs] = [planned for planned in self._rules if not shown.isdisjoint(planned.rule.on)]
        return found
