"""Reads plain command lines without typer's parser, and completes words in the shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class _Reader:
    """Stands for the one of typer, which it asks where a word must be converted or refused."""

    def __init__(self, typers: Callable[[], Any]) -> None:
        self._typers = typers

    def coerce(self, value: Any, param: TyperArgument | TyperOption, ctx: typer.Context) -> Any:
        """Return the value of a parameter."""
        several = param.multiple or param.nargs == -1
        wanted = param.type_descriptor.annotation
        if value is None:
            return () if several else None
        if several and wanted == list[str] and all(type(word) is str for word in value):
            return list(value)
        if wanted in (str, int) and type(value) is wanted:  # an integer is a default
            return value
        if value in _choices(wanted):
            return value
        return self._typers().coerce(value, param=param, ctx=ctx)


def _choices(wanted: Any) -> tuple[Any, ...]:
    origin: Any = get_origin(wanted)
    return get_args(wanted) if origin is Literal else ()


def _plainly(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, (TyperArgument, TyperOption)) and not isinstance(param.get_runtime_param, partial):
            param.get_runtime_param = partial(_Reader, param.get_runtime_param)  # type: ignore[method-assign, assignment]
    return params


class Command(TyperCommand):
    """A command of typer, each of whose words is read by ``_Reader``, and whose help has options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options under the headings that they name, in the order in which these first occur."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                option = param.param_type_name == "option"
                groups.setdefault((param.rich_help_panel or "Options") if option else "Arguments", []).append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return what can stand behind the command."""
        return _plainly(super().get_params(ctx))


class Group(TyperGroup):
    """The same for what stands before a command; ``cachedoctor server.log`` means ``analyze server.log``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and words of a command; the first word may be a log instead."""
        log = args[0]
        if log not in self.commands and (log == "-" or os.path.exists(log)):
            args = ["analyze", *args]
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return what can stand before a command."""
        return _plainly(super().get_params(ctx))


def rule(incomplete: str) -> list[tuple[str, str]]:
    """Codes and names that begin so, each with the other as its explanation; names only for an empty word."""
    from cachedoctor.diagnosis.rules.names import names

    pairs = [(name, code) for code, name in names()]
    if incomplete:
        pairs = [*names(), *pairs]
    # As they are spelt so far: what begins otherwise, be it a capital, is not offered.
    size, begun = len(incomplete), incomplete.lower()
    found: dict[str, str] = {}  # engines have causes of the same name
    for word, other in pairs:
        if word.lower().startswith(begun):
            found[word] = f"{found[word]}, {other}" if word in found else other
    return [(incomplete + word[size:], other) for word, other in found.items()]


def explained(incomplete: str) -> list[tuple[str, str]]:
    """The same, and words of the reports where something was typed that begins one."""
    from cachedoctor.knowledge import glossary

    begun = incomplete.lower()
    words = {term.name: "word" for term in glossary.terms() if begun and term.name.lower().startswith(begun)}
    blind = {"blind": "rules that could not be evaluated"} if begun and "blind".startswith(begun) else {}
    return [*rule(incomplete), *((incomplete + word[len(begun) :], about) for word, about in (words | blind).items())]


def rules(incomplete: str) -> list[tuple[str, str]]:
    """The same for the last word of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + word, explanation) for word, explanation in rule(last)]
