"""What is asked of a launcher: options, of which server, and what is known of how it is started."""

from __future__ import annotations

import re
from typing import NamedTuple

from cachedoctor.knowledge import flags
from cachedoctor.knowledge.server_options import Name, Option
from cachedoctor.launchers.command_words import given, words
from cachedoctor.model import OptionChange

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,200}")


class Asked(NamedTuple):
    """Options for one server."""

    changes: list[OptionChange]
    engine: str = "llama.cpp"
    low: int | None = None
    """Oldest build that it may be."""
    high: int | None = None
    name: str | None = None
    """Service, unit or container, as the log's wrapper names it."""
    line: str | None = None
    """Its command line, where that is known."""

    @property
    def place(self) -> str | None:
        """The name, where it is one that can stand in a command and in YAML unquoted."""
        return self.name if self.name is not None and _PLAIN_NAME.fullmatch(self.name) else None

    @property
    def adding(self) -> str:
        """What to do with options of a command: one that stands on a known line is changed."""
        return "add to" if self.line is None else "change in, or add to,"

    @property
    def server(self) -> str:
        """Name of the program."""
        return {"vllm": "vllm", "sglang": "sglang"}.get(self.engine, "llama-server")


class Divided(NamedTuple):
    """Options as variables of the environment, and those that have none."""

    variables: dict[str, str]
    left_out: list[str]
    """Variables that must go."""
    options: list[OptionChange]


def divided(asked: Asked) -> Divided:
    """Write as many options as possible as variables, by the names that the builds have.

    A variable counts only where the command line does not have the option: what stands on a known one stays an option.
    """
    found = Divided({}, [], [])
    line = [] if asked.line is None else words(asked.line)
    for change in asked.changes:
        if change.variable:
            if change.remove:
                found.left_out.append(change.name)
            else:
                found.variables[change.name] = change.value or ""
            continue
        stays = change.remove or asked.engine != "llama.cpp" or given(line, change.name)
        pair = None if stays else variable(change, asked.low, asked.high)
        if pair is None:
            found.options.append(change)
        else:
            found.variables[pair[0]] = pair[1]
    return found


def variable(change: OptionChange, low: int | None, high: int | None) -> tuple[str, str] | None:
    """(variable, value) that stands for an option of llama-server; None where the builds have none that is certain."""
    entry = flags.BY_NAME.get(flags.plain(change.name))
    if entry is None:
        return None
    option, name, on = entry
    if not on and not _read_both_ways(option, name, low, high):
        return None
    found = next((n.text for n in option.env if n.text not in flags.UNREAD_ENV and n.exists(low, high)), None)
    if found is None:
        return None
    return found, change.value if change.value is not None else "1" if on else "0"


def _read_both_ways(option: Option, off: Name, low: int | None, high: int | None) -> bool:
    """Whether the variable of an option is read as off, too: that of a switch which has a name for it in new builds."""
    paired = option.kind == "switch" and low is not None and low >= flags.READ_BOTH_WAYS
    return paired and off.exists(low, high) is True
