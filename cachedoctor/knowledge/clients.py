"""What clients write into prompts, since when, what stops it: the table ``clients.toml``, typed, and how to look it up.

A client is named by text that nobody else writes, or by its own name and what differs; never by what differs alone.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from cachedoctor.model import ClientSetting


class HabitSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting that stops a habit: a variable, a key in a file, or either."""

    variable: str | None = None
    value: str | None = None
    """None if the variable must not be set."""
    file: str | None = None
    key: str | None = None
    """Its key in the file, by dots."""


class Habit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a client writes."""

    name: str
    writes: str
    """What it writes, as the predicate of a sentence whose subject is the client's title."""
    where: Literal["head", "tools", "history", "request"]
    versions: str
    """Versions that are known to do it, in words."""
    stop: str
    """What stops it."""
    sources: list[str]
    """Threads, changelogs and source files that prove it."""
    commands: list[str] = []
    settings: list[HabitSetting] = []
    """What the commands set: variables with their values, and the file that can hold each setting instead."""
    kinds: list[str] = []
    """Kinds of difference that it causes."""
    fields: list[str] = []
    """What varies in it; empty: anything."""
    text: str = ""
    """Regular expression of text in a message, which must hold the first difference; empty: any text."""
    own: bool = False
    """True if no other client writes ``text``."""
    printed: str = ""
    """Regular expression of the text around the ``|`` marker of an ``old:`` / ``new:`` pair."""
    hint: bool = False
    """True if it is worth a word of advice, but is not named as the cause."""
    dated: bool = False
    """True if it is named only when the prompt shows a version older than ``fixed``."""
    fixed: str | None = None
    """The version that no longer does it; None if none is known."""


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that sends prompts."""

    name: str
    title: str
    says: str = ""
    """Regular expression: how it names itself in its system prompt; empty if it does not."""
    version: str = ""
    """Regular expression: where its prompts show a version."""
    habit: list[Habit]


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    client: list[Client]


class KnownHabit(NamedTuple):
    """A habit and its client."""

    client: Client
    habit: Habit

    @property
    def handle(self) -> str:
        """Name it among all: ``claude-code/billing-header``."""
        return f"{self.client.name}/{self.habit.name}"

    @property
    def settings(self) -> list[ClientSetting]:
        """What stops it, as a remedy carries it."""
        title = self.client.title
        return [ClientSetting(title, s.variable, s.value, s.file, s.key) for s in self.habit.settings]


@cache
def table() -> tuple[Client, ...]:
    """Give all clients, in the order of the table."""
    raw = Path(__file__).with_name("clients.toml").read_bytes()
    return tuple(msgspec.toml.decode(raw, type=_Table).client)


def known(handle: str) -> KnownHabit:
    """Give a habit by its handle.

    Raises:
        KeyError: the table has none of that handle.
    """
    found = next((k for k in _all() if k.handle == handle), None)
    if found is None:
        raise KeyError(handle)
    return found


def habits_named(name: str) -> list[KnownHabit]:
    """Give the habits of all clients that have this name."""
    return [found for found in _all() if found.habit.name == name]


def ways_to_stop(name: str) -> str:
    """Give how each client that has a habit of this name is kept from it, in one line."""
    return "; ".join(f"{k.client.title}: {k.habit.stop}" for k in habits_named(name))


def settings_by_commands(commands: list[str]) -> list[ClientSetting]:
    """Give the settings of the habit that has these commands; none for others."""
    found = next((k for k in _all() if commands and k.habit.commands == commands), None)
    return [] if found is None else found.settings


class MessagePiece(msgspec.Struct, frozen=True):
    """The text of one message or value around the first difference."""

    text: str
    at: int
    """Offset of the difference in it."""


def recognise(kind: str, field: str | None, heads: list[str], pieces: list[MessagePiece]) -> list[KnownHabit]:
    """Give the habits that explain a difference of this kind, those that name their client first.

    ``heads`` are the system prompts, ``pieces`` the text of both sides around the difference.
    """
    found = [
        k
        for k in _all()
        if kind in k.habit.kinds
        and (not k.habit.fields or field in k.habit.fields)
        and (not k.habit.text or any(_holds(_compiled(k.habit.text), piece) for piece in pieces))
        and (k.habit.own or _says(k.client, heads))
        and _of_version(k, heads)
    ]
    return sorted(found, key=lambda k: k.habit.hint)


def printed(old: str, new: str) -> KnownHabit | None:
    """Give the habit whose text holds the bar of an ``old:`` / ``new:`` pair that differs there; None if none does."""
    sides = [text.partition(" | ") for text in (old, new)]
    if any(not bar for _, bar, _ in sides) or sides[0][2].strip() == sides[1][2].strip():
        return None
    pieces = [MessagePiece(before + after, len(before)) for before, _, after in sides]
    return next((k for k in _all() if k.habit.printed and _holds(_compiled(k.habit.printed), pieces[1])), None)


@cache
def _all() -> tuple[KnownHabit, ...]:
    return tuple(KnownHabit(client, habit) for client in table() for habit in client.habit)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _holds(pattern: re.Pattern[str], piece: MessagePiece) -> bool:
    return any(m.start() <= piece.at < m.end() for m in pattern.finditer(piece.text))


def _says(client: Client, heads: list[str]) -> bool:
    return bool(client.says) and any(_compiled(client.says).search(head) for head in heads)


def _of_version(k: KnownHabit, heads: list[str]) -> bool:
    """Whether the version that the prompts show, if any, still has the habit."""
    if k.habit.fixed is None or not k.client.version:
        return not k.habit.dated
    shown = [found[1] for head in heads if (found := _compiled(k.client.version).search(head))]
    if not shown:
        return not k.habit.dated
    return min(map(_numbers, shown)) < _numbers(k.habit.fixed)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
