"""Commands: groups of options, plain command lines without typer's parser, help of one screen, completion."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup


class Grouped:
    """A function some of whose parameters are groups of options (named tuples), as typer reads it: every option apart.

    Example: of ``def watch(log: ..., gate: Gate)`` typer sees ``log``, ``select``, ``ignore``, ``config`` ...
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        return {name: kind for name, kind in self._hints.items() if hasattr(kind, "_fields")}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        found = []
        for name, given in inspect.signature(self._function).parameters.items():
            group = self._groups.get(name)
            if group is None:
                found.append((name, self._hints[name], given.default))
            else:
                hints = get_type_hints(group, include_extras=True)
                found += [(field, hints[field], group._field_defaults[field]) for field in group._fields]
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(n, kind, annotation=a, default=d) for n, a, d in found])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: parameter.annotation for name, parameter in self.__signature__.parameters.items()}

    def __call__(self, **values: Any) -> None:
        """Call the function with its groups made of the options."""
        for name, group in self._groups.items():
            values[name] = group(*(values.pop(field) for field in group._fields))
        self._function(**values)


HELP_ALL = "--help-all"
_HELP_NAMES = ["-h", "--help", HELP_ALL]


class GroupedCommand(TyperCommand):
    """A command of typer whose help has options in groups."""

    heading = ""
    """Under which the list of commands has it."""
    most: Sequence[str] = ()
    """Options that ``--help`` shows; all of them where none is named."""
    examples: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command."""
        ctx.meta[HELP_ALL] = not self.most or HELP_ALL in args
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does; without the paragraphs on details where ``--help`` is short."""
        whole = self.help
        try:
            self.help = whole if ctx.meta[HELP_ALL] else (whole or "").split("\n\n", maxsplit=1)[0]
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options under the headings that they name, in the order in which these first occur."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        params: list[Any] = [*self.get_params(ctx)]
        for param in params:
            record = param.get_help_record(ctx)
            option = param.param_type_name == "option"
            if record is None or (option and not ctx.meta[HELP_ALL] and not {*self.most} & {*param.opts}):
                continue
            # --help is an option of click, which has no panel, up to typer 0.26
            heading = (getattr(param, "rich_help_panel", None) or "Options") if ctx.meta[HELP_ALL] else "Options"
            groups.setdefault(heading if option else "Arguments", []).append(record)
        if not ctx.meta[HELP_ALL]:
            count = sum(param.param_type_name == "option" for param in params) - 1
            more = f"All {count} options, details" if count > len(self.most) else "Details"
            groups["Options"].append((HELP_ALL, f"{more} and exit statuses."))
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples of the command."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")


def add_command(
    app: typer.Typer,
    heading: str,
    function: Callable[..., None],
    about: str,
    most: Sequence[str],
    examples: Sequence[str] = (),
) -> None:
    """Add a command that is called as its function.

    Args:
        app: the application.
        heading: under which the list of commands has it.
        function: its parameters are arguments, options and groups of options.
        about: a line for the list of commands.
        most: options that ``--help`` shows; all of them where none is given.
        examples: command lines below the options.
    """
    kind = type("Command", (GroupedCommand,), {"heading": heading, "most": most, "examples": examples})
    names = {"help_option_names": _HELP_NAMES}
    app.command(function.__name__, cls=kind, short_help=about, context_settings=names)(Grouped(function))


class CommandGroup(TyperGroup):
    """All commands; ``cachedoctor server.log`` means ``analyze server.log``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and words of a command; the first word may be a log instead."""
        log = args[0]
        if log not in self.commands and (log == "-" or os.path.exists(log)):
            args = ["analyze", *args]
        elif log not in self.commands and not log.startswith("-") and not ctx.resilient_parsing:
            from cachedoctor.cli.wrong_names import suggestion
            from cachedoctor.model import CacheDoctorError

            raise CacheDoctorError(f"no such command {log!r}", suggestion(log, [*self.commands]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under their headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            groups.setdefault(getattr(command, "heading", ""), []).append((name, command.get_short_help_str(100)))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=12)


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
    pages = {"blind": "rules that could not be checked", "settings": "current settings and their origin"}
    words |= {name: about for name, about in pages.items() if begun and name.startswith(begun)}
    return [*rule(incomplete), *((incomplete + word[len(begun) :], about) for word, about in words.items())]


def rules(incomplete: str) -> list[tuple[str, str]]:
    """The same for the last word of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + word, explanation) for word, explanation in rule(last)]
