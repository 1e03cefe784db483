"""Finds the rules by the names of their files."""

from __future__ import annotations

import importlib

import msgspec

from cachedoctor.diagnosis.rules.kit import AnyRule, RequestRule
from cachedoctor.diagnosis.rules.names import find, identify, modules, names, pages, path

__all__ = ["Broken", "find", "load", "modules", "names", "pages"]


class Broken(msgspec.Struct):
    """A rule whose module could not be imported: the run goes on without it."""

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
    """Order the rules so that each comes behind those that it gives way to, or is said with.

    Raises:
        ValueError: some give way to each other.
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
