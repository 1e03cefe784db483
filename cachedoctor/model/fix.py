"""What a fix changes: options of a server, settings of a client, merged over the findings of a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

from cachedoctor.model.bounds import Code, Count, Long, Name

Launcher = Literal["shell", "docker", "compose", "systemd", "kubernetes", "llama-swap", "ollama", "lm-studio", "jan"]
"""What starts a server, and so what holds its options."""


class FixStep(msgspec.Struct):
    """One thing to do."""

    where: Literal["client", "server"]
    text: str
    """What it is, and what to do afterwards."""
    commands: list[str] = msgspec.field(default_factory=list)
    """Rows to be copied, in the form of the launcher: commands, or what belongs into its file."""
    form: Literal["sh", "options", "yaml", "ini", "words"] = "sh"
    """What the rows are: a shell's, options for a command line, YAML, a unit of systemd, or settings of a window."""


class OtherFix(msgspec.Struct):
    """A further remedy of a finding in the form of what starts the server: another way, or what shows more."""

    options: list[OptionChange]
    """By which the remedy is known."""
    steps: list[FixStep]
    """Empty where it cannot be set there."""
    notes: list[str]
    """What cannot be set there."""


REPLAY_FIT = 0.9
"""Share of the requests that a replay has to explain before it confirms or rejects an option."""


class OptionReplay(msgspec.Struct, frozen=True):
    """What the replay shows of options."""

    claimed_tokens: Long
    """What the findings cost that the options are for."""
    saved_tokens: Long | None
    """What the whole log reuses more with the options; None where the replay can neither confirm nor reject them."""
    equal: Count
    """Requests of which the replay, under the settings that ran, says the same as the server."""
    requests: Count
    """Requests of which the server says what it reused."""
    assumed: Count = 0
    """Requests of which the log does not show what they share with earlier ones: the saving is an estimate then."""

    @property
    def words(self) -> str:
        """One sentence: ``Replayed on this log: saves 13,529 of 13,529 tokens.``"""
        if self.saved_tokens is not None:
            saved = f"{'about ' if self.assumed else ''}{min(self.saved_tokens, self.claimed_tokens):,}"
            return f"Replayed on this log: saves {saved} of {self.claimed_tokens:,} tokens."
        if not self.is_explained:
            explained = f"{self.equal:,} of {self.requests:,}"
            return f"Not confirmed: the replay explains {explained} requests of this log."
        return "Not confirmed: this log does not show that the recomputed tokens had been sent before."

    @property
    def is_explained(self) -> bool:
        """Whether the replay agrees with the server in nine of ten requests."""
        return bool(self.requests) and self.equal >= REPLAY_FIT * self.requests


class Fix(msgspec.Struct):
    """What to change at one server and its clients, the cheapest test first."""

    path: str | None
    """Input that it is about."""
    origin: str | None
    """Server that the wrapper names."""
    engine: str
    """llama.cpp, vllm, sglang, or the name of a program."""
    server: str
    """Its name and build, in words."""
    launcher: Launcher | None
    """What starts it, as far as the log shows or somebody said."""
    codes: list[Code]
    """Findings that it is for."""
    names: list[Name]
    """Their names, in the same order."""
    options: list[OptionChange]
    """Of the server, all findings together."""
    settings: list[ClientSetting]
    """Of clients."""
    steps: list[FixStep]
    """What to do, the cheapest test first."""
    costs: list[str]
    """What it takes in memory, as far as the log shows."""
    notes: list[str]
    """Findings that ask for different values, and what cannot be set there."""
    others: list[OtherFix] = msgspec.field(default_factory=list)
    """Remedies of its findings that are not merged into these options, where it is known what starts it. Where nothing
    is merged, there are no codes and no steps. Added after the first release of v1: may be missing."""
    replay: OptionReplay | None = None
    """What the replay shows of all options together; None where they were not tried. Added after the first
    release of v1: may be missing."""


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
            raise ValueError(f"a value without an option: {word}")
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
