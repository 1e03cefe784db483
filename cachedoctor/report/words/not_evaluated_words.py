"""Rules that could not be evaluated, those with one reason and one remedy together. Knows no format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cachedoctor.model import NotEvaluated, Restart


class Unanswered(NamedTuple):
    """Why some rules could not be evaluated, and what would make it possible."""

    reason: str
    advice: str
    commands: list[str]
    rules: list[NotEvaluated]

    def covered(self, restart: Restart | None) -> bool:
        """Whether the one restart of the report does what is advised here."""
        of_server = any("llama-server" in words for words in (self.advice, *self.commands))
        return of_server and restart is not None and set(restart.codes).issuperset(rule.code for rule in self.rules)


def grouped(rules: Iterable[NotEvaluated]) -> list[Unanswered]:
    """Return the groups in the order of their first codes."""
    groups: dict[tuple[str, str], list[NotEvaluated]] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        groups.setdefault((rule.reason, rule.enable), []).append(rule)
    found = []
    for (reason, enable), members in groups.items():
        advice, *commands = enable.split("\n")
        found.append(Unanswered(reason, advice, commands, members))
    return found
