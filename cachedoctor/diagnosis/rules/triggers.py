"""The triggers that a request shows. A rule names those that it may speak about, and is asked about no other request.

A cheap look before the rules' own: most causes need something that most requests do not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cachedoctor.diagnosis.rules.kit import MIN_LOST, AnyRule, RequestRule, RuleContext, Trigger

_MARKED: frozenset[Trigger] = frozenset({"checkpoint_failed", "ram_failed", "slept", "stale", "slot_file"})
"""Triggers that are marks of the request."""
_MARKED_LOSS: frozenset[Trigger] = frozenset({"lora", "idle_cleared", "ram_taken", "slot_erased"})
"""Triggers that are marks of a request with lost tokens."""
OF_LOSS: frozenset[Trigger] = frozenset(
    {"loss", "text", "bar", "changed", "early", "taken", "stuck", "dropped", "looked", "failed", *_MARKED_LOSS}
)
"""Triggers that only a request with lost tokens shows, or one of which that is not known."""
OF_COMPUTED_TWICE: frozenset[Trigger] = OF_LOSS | {"together"}
"""Triggers that only a request shows some of whose tokens another one had, or was computing: without any of these,
nothing was computed twice."""


def triggers_of(s: RuleContext) -> tuple[Trigger, ...]:
    """Return the triggers of a request, always in the same order."""
    r = s.request
    found: list[Trigger] = []
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
        if not _MARKED_LOSS.isdisjoint(r.marks):
            found += sorted(_MARKED_LOSS & r.marks.keys())
    if s.too_small or (s.request.outcome == "unknown" and s.symptom):
        found.append("symptom")
    if s.text_alone:
        found.append("bar")
    if r.seen.error is not None:
        found.append("error")
    if r.shifted or (s.before and s.before[-1].request.shifted):
        found.append("shift")
    if r.partial:
        found.append("partial")
    if "restarted" in s.facts.settings:
        found.append("restarted")
    if r.together_tokens:
        found.append("together")
    if not _MARKED.isdisjoint(r.marks):
        found += sorted(_MARKED & r.marks.keys())
    return tuple(found)


class Asked(NamedTuple):
    """A rule with what silences it."""

    rule: RequestRule
    unless: frozenset[str]
    weak_unless: frozenset[str]
    only_with: frozenset[str]


class Plan:
    """Which rules are asked about which triggers."""

    def __init__(self, rules: Iterable[AnyRule]) -> None:
        self._rules = [
            Asked(rule, frozenset(rule.unless), frozenset(rule.weak_unless), frozenset(rule.only_with))
            for rule in rules
            if isinstance(rule, RequestRule)
        ]
        self._asked: dict[tuple[Trigger, ...], list[Asked]] = {}

    def rules(self, triggers: tuple[Trigger, ...]) -> list[Asked]:
        """Rules for a request with these triggers, in their order; where its text is known, every rule of a loss."""
        found = self._asked.get(triggers)
        if found is None:
            shown = frozenset(triggers) | (OF_LOSS if "text" in triggers else frozenset())
            found = self._asked[triggers] = [asked for asked in self._rules if not shown.isdisjoint(asked.rule.on)]
        return found
