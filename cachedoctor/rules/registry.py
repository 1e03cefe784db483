"""Finds the rules by the names of their files. Knows no rule by name."""

from __future__ import annotations

import importlib

import msgspec

from cachedoctor.rules.base import Rule
from cachedoctor.rules.names import find, modules, names, pages

__all__ = ["Broken", "find", "load", "modules", "names", "pages"]


class Broken(msgspec.Struct):
    """A rule whose module could not be imported: the run goes on without it."""

    code: str
    name: str
    error: str


def load() -> tuple[list[Rule], list[Broken]]:
    """Import every rule; one that fails is reported, not fatal."""
    rules, broken = [], []
    for module in modules():
        code, _, name = module.partition("_")
        try:
            rules.append(importlib.import_module(f"cachedoctor.rules.{module}").RULE)
        except Exception as error:  # a broken rule must not take the others with it
            broken.append(Broken(code.upper(), name.replace("_", "-"), repr(error)))
    return _causes_first(rules), broken


def _causes_first(rules: list[Rule]) -> list[Rule]:
    """Order the rules so that each comes behind the causes it names in ``after``."""
    ordered: list[Rule] = []
    waiting = list(rules)
    while waiting:
        done = {rule.code for rule in ordered}
        known = {rule.code for rule in waiting} | done
        ready = [rule for rule in waiting if all(code in done or code not in known for code in rule.after)]
        if not ready:
            raise ValueError(f"rules wait for each other: {', '.join(rule.code for rule in waiting)}")
        ordered += ready[:1]
        waiting.remove(ready[0])
    return ordered
