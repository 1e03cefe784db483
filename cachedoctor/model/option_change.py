"""What a fix changes: options of a server, settings of a client."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


class OptionChange(msgspec.Struct, frozen=True):
    """One option of a server, set or left out."""

    name: str
    """As this build calls it, the long name: ``--cache-ram``; of a variable: ``LLAMA_SERVER_SLOTS_DEBUG``."""
    value: str | None = None
    """None for a switch, and for an option that is left out."""
    remove: bool = False
    """It is to be left out where it is given."""

    @property
    def variable(self) -> bool:
        """Whether it is set in the environment."""
        return not self.name.startswith("-")

    @property
    def words(self) -> list[str]:
        """The words of a command line, unquoted; none where it is left out."""
        if self.remove:
            return []
        if self.variable:
            return [f"{self.name}={self.value or ''}"]
        return [self.name] if self.value is None else [self.name, self.value]


class ClientSetting(msgspec.Struct, frozen=True):
    """One setting of a program that sends prompts."""

    client: str
    """As people call it: ``Claude Code``."""
    variable: str | None = None
    """Of its environment."""
    value: str | None = None
    """None: the variable is taken out of the environment."""
    file: str | None = None
    """Where the setting can stand as well: ``~/.claude/settings.json``."""
    key: str | None = None
    """Its place in the file, by dots: ``env.CLAUDE_CODE_ATTRIBUTION_HEADER``."""


def as_typed(written: str) -> list[OptionChange]:
    """Read options as they are typed: ``SGLANG_X=1 --page-size 64 --jinja``.

    Raises:
        ValueError: a word is neither option nor value.
    """
    found: list[OptionChange] = []
    for word in shlex.split(written):
        variable = _VARIABLE.fullmatch(word)
        if variable is not None:
            found.append(OptionChange(variable[1], variable[2]))
        elif _OPTION.fullmatch(word):
            found.append(OptionChange(word))
        elif found and not found[-1].variable and found[-1].value is None:
            found[-1] = OptionChange(found[-1].name, word)
        else:
            raise ValueError(f"a value without its option: {word}")
    return found


def left_out(*names: str) -> list[OptionChange]:
    """Give options that are to be left out."""
    return [OptionChange(name, remove=True) for name in names]


def option_rows(changes: Sequence[OptionChange]) -> list[str]:
    """Write what is set as a shell takes it: a row that exports variables, a row of options for the command line."""
    variables = [word for c in changes if c.variable for word in c.words]
    words = [word for c in changes if not c.variable for word in c.words]
    exported = [f"export {shlex.join(variables)}"] if variables else []
    return [*exported, *([shlex.join(words)] if words else [])]
