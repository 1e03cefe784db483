"""The signs that a request shows. A rule names those that it may speak about, and is asked about no other request.

A cheap look before the rules' own: most causes need something that most requests do not have. Knows situations; knows no
cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from cachedoctor.rules.base import MIN_LOST, Rule, Sign, Situation

_MARKED: frozenset[Sign] = frozenset({"ram_failed", "slept", "stale", "slot_file"})
"""Signs that are marks of the request."""
_MARKED_LOSS: frozenset[Sign] = frozenset({"lora", "idle_cleared"})
"""Signs that are marks of a request with lost tokens."""
OF_LOSS: frozenset[Sign] = frozenset(
    {"loss", "text", "changed", "early", "taken", "stuck", "dropped", "looked", "failed", *_MARKED_LOSS}
)
"""Signs that only a request with lost tokens shows."""


def signs_of(s: Situation) -> tuple[Sign, ...]:
    """Return the signs of a request, always in the same order."""
    r = s.request
    found: list[Sign] = []
    if s.lost:
        found.append("loss")
        if r.difference is not None or r.new_text is not None:
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
        if r.checks or (r.held_positions and r.forced):
            found.append("looked")
        if r.truncate_failed_at is not None:
            found.append("failed")
        if not _MARKED_LOSS.isdisjoint(r.marks):
            found += sorted(_MARKED_LOSS & r.marks.keys())
    if r.error is not None:
        found.append("error")
    if r.shifted or (s.history and s.history[-1].shifted):
        found.append("shift")
    if r.partial:
        found.append("partial")
    if "restarted" in s.session.settings:
        found.append("restarted")
    if not _MARKED.isdisjoint(r.marks):
        found += sorted(_MARKED & r.marks.keys())
    return tuple(found)


class Plan:
    """Which rules are asked about which signs."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._asked: dict[tuple[Sign, ...], list[Rule]] = {}

    def rules(self, signs: tuple[Sign, ...]) -> list[Rule]:
        """Rules for a request with these signs, in their order; where its text is known, every rule of a loss."""
        found = self._asked.get(signs)
        if found is None:
            shown = frozenset(signs) | (OF_LOSS if "text" in signs else frozenset())
            found = self._asked[signs] = [rule for rule in self._rules if not shown.isdisjoint(rule.on)]
        return found
