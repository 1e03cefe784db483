"""What a fix changes: options of a server, settings of a client, merged over the findings of a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

from cachedoctor.model.bounds import Code, Count, Long, Name

Launcher = Literal["shell", "docker", "compose", "systemd", "kubernetes", "llama-swap", "ollama", "lm-studio", "jan"]
"""The program that starts a server and holds its options."""


class FixStep(msgspec.Struct):
    """One thing to do."""

    where: Literal["client", "server"]
    text: str
    """What to do, and what to do afterwards."""
    commands: list[str] = msgspec.field(default_factory=list)
    """Lines to copy, in the launcher's format: commands, or the content of the launcher's file."""
    form: Literal["sh", "options", "yaml", "ini", "words"] = "sh"
    """Format of the lines: shell, command line options, YAML, systemd unit, or settings in a dialog."""


class OtherFix(msgspec.Struct):
    """A further remedy of a finding, in the launcher's format: an alternative, or a step that only shows more of the
    cause."""

    options: list[OptionChange]
    """Options that identify the remedy."""
    steps: list[FixStep]
    """What to do; empty if the launcher cannot set the options."""
    notes: list[str]
    """What the launcher cannot set."""


REPLAY_FIT = 0.9
"""Share of the requests that a replay has to explain before it confirms or rejects an option."""


class OptionReplay(msgspec.Struct, frozen=True):
    """Result of a replay with options."""

    claimed_tokens: Long
    """Tokens recomputed because of the findings that these options fix."""
    saved_tokens: Long | None
    """Additional tokens reused over the whole log with the options; None if the replay cannot confirm or reject the
    saving."""
    equal: Count
    """Requests for which a replay with the recorded settings matches the server."""
    requests: Count
    """Requests whose reuse the server logged."""
    assumed: Count = 0
    """Requests whose common prefix with earlier requests the log does not show. If there are any, the saving is an
    estimate."""

    @property
    def words(self) -> str:
        """One sentence: ``In a replay this saves 13,529 of 13,529 recomputed tokens.``"""
        if self.saved_tokens is not None:
            saved = f"{'about ' if self.assumed else ''}{min(self.saved_tokens, self.claimed_tokens):,}"
            return f"In a replay this saves {saved} of {self.claimed_tokens:,} recomputed tokens."
        if not self.is_explained:
            explained = f"{self.equal:,} of {self.requests:,}"
            return f"Saving not confirmed: the replay reproduces {explained} requests."
        return "Saving not confirmed: this log does not show that the recomputed tokens had been sent before."

    @property
    def is_explained(self) -> bool:
        """True if the replay agrees with the server in nine of ten requests."""
        return bool(self.requests) and self.equal >= REPLAY_FIT * self.requests


class Fix(msgspec.Struct):
    """What to change for one server and its clients, the cheapest step first."""

    path: str | None
    """Input that the entry is about."""
    origin: str | None
    """Server that the wrapper names."""
    engine: str
    """llama.cpp, vllm, sglang, or the name of a program."""
    server: str
    """Name and build of the server, in words."""
    launcher: Launcher | None
    """Launcher of the server, if the log shows it or the user named it."""
    codes: list[Code]
    """Codes of the findings that the change fixes."""
    names: list[Name]
    """Names of the findings, in the same order."""
    options: list[OptionChange]
    """Options of the server, merged over all findings."""
    settings: list[ClientSetting]
    """Settings of clients."""
    steps: list[FixStep]
    """What to do, the cheapest step first."""
    costs: list[str]
    """Memory that the options need, as far as the log shows the sizes."""
    notes: list[str]
    """Conflicts of findings that need different values, and options that the launcher cannot set."""
    others: list[OtherFix] = msgspec.field(default_factory=list)
    """Further remedies of the findings, if the launcher is known; they are not part of the merged options. If no
    options were merged, there are no codes and no steps. Added after the first release of v1: may be missing."""
    replay: OptionReplay | None = None
    """Result of a replay with all options together; None if the options were not replayed. Added after the first
    release of v1: may be missing."""


_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


class OptionChange(msgspec.Struct, frozen=True):
    """One option of a server that is set or removed."""

    name: str
    """The long name in this build: ``--cache-ram``; for a variable: ``LLAMA_SERVER_SLOTS_DEBUG``."""
    value: str | None = None
    """Value of the option; None for a switch, and for an option that is removed."""
    remove: bool = False
    """True if the option must be removed."""

    @property
    def variable(self) -> bool:
        """Whether it is set in the environment."""
        return not self.name.startswith("-")

    @property
    def words(self) -> list[str]:
        """The words of a command line, unquoted; none if it is left out."""
        if self.remove:
            return []
        if self.variable:
            return [f"{self.name}={self.value or ''}"]
        return [self.name] if self.value is None else [self.name, self.value]


class ClientSetting(msgspec.Struct, frozen=True):
    """One setting of a program that sends prompts."""

    client: str
    """Usual name of the program: ``Claude Code``."""
    variable: str | None = None
    """Environment variable of the client."""
    value: str | None = None
    """Value of the variable; None if the variable must be unset."""
    file: str | None = None
    """Configuration file that can hold the setting instead: ``~/.claude/settings.json``."""
    key: str | None = None
    """Key of the setting in the file: ``env.CLAUDE_CODE_ATTRIBUTION_HEADER``."""


def as_typed(written: str) -> list[OptionChange]:
    """Parse options as a user types them: ``SGLANG_X=1 --page-size 64 --jinja``.

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
    """Format what is set for a shell: a row that exports variables, a row of options for the command line."""
    variables = [word for c in changes if c.variable for word in c.words]
    words = [word for c in changes if not c.variable for word in c.words]
    exported = [f"export {shlex.join(variables)}"] if variables else []
    return [*exported, *([shlex.join(words)] if words else [])]
