"""Applies what cachedoctor printed, from its JSON report: options, variables, another build, words for the client."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from e2e import wheels

LOOKS = re.compile(r"SLOTS_DEBUG|--log-prompts-dir|--verbosity\b")
"""Options that show a cause and cure nothing."""
BUILD = re.compile(r"\bb(\d{4,5})\b")


DROP = re.compile(r"[Rr]emove (--[a-z-]+)")
"""An option without a value that is to go."""


class NotMechanicalError(Exception):
    """The remedy holds nothing that a program could do."""


@dataclass(frozen=True)
class Setup:
    """A server, and the client before it: all that a remedy can change."""

    build: int
    model: str
    options: tuple[str, ...]
    server_env: Mapping[str, str] = field(default_factory=dict)
    client_env: Mapping[str, str] = field(default_factory=dict)
    habits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """One thing that a printed remedy says to do."""

    text: str
    command: str | None = None

    def __str__(self) -> str:
        return self.command or self.text

    @property
    def looks(self) -> bool:
        """Whether it shows a cause instead of removing it."""
        return bool(self.command and (LOOKS.search(self.command) or self.command.startswith("cachedoctor ")))


def actions(finding: dict[str, Any]) -> list[Action]:
    """Every command of every remedy of a finding in the report's JSON, and the text of those without one."""
    found = []
    for remedy in finding["remedies"]:
        found += [Action(remedy["text"], command) for command in remedy["commands"]] or [Action(remedy["text"])]
    return found


def applied(action: Action, before: Setup, words: Mapping[str, Mapping[str, Any]]) -> Setup:
    """Do what ``action`` says, and nothing else.

    An option replaces the one of its name. ``words`` maps a phrase of a remedy without a command to the habits
    of the client that follow from it. Raises NotMechanicalError.
    """
    if action.command is None:
        return _from_words(action.text, before, words)
    parts = shlex.split(action.command)
    if parts[0] == "export":
        set_ = _assignments(parts[1:])
        if all(name.startswith("LLAMA_") for name in set_):
            return replace(before, server_env={**before.server_env, **set_})
        return replace(before, client_env={**before.client_env, **set_})
    if not _is_name(parts[0]):
        raise NotMechanicalError(action.command)
    return replace(before, options=merged(before.options, parts))


def merged(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Options ``old`` without those that ``new`` names, then ``new``; a value belongs to the option before it."""
    named, kept, keeping = {part for part in new if _is_name(part)}, list[str](), True
    for part in old:
        keeping = part not in named if _is_name(part) else keeping
        kept += [part] if keeping else []
    return (*kept, *new)


def _is_name(part: str) -> bool:
    return part.startswith("-") and not part[1:2].isdigit()


def _assignments(parts: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in parts)}


def _from_words(text: str, before: Setup, words: Mapping[str, Mapping[str, Any]]) -> Setup:
    """Follow a remedy without a command: an update to the first build it names, or the client's part of the case."""
    build = BUILD.search(text)
    if text.startswith("Update llama.cpp") and build:
        return replace(before, build=wheels.at_least(int(build[1])))
    dropped = DROP.search(text)
    if dropped and dropped[1] in before.options:
        return replace(before, options=tuple(option for option in before.options if option != dropped[1]))
    for phrase, habits in words.items():
        if phrase in text:
            return replace(before, habits={**before.habits, **habits})
    raise NotMechanicalError(text)
