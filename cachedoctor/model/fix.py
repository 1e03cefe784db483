"""What the findings of a server ask for together: one set of options and settings, in the form of what starts it."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Code, Name
from cachedoctor.model.option_change import ClientSetting, OptionChange

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
    """What starts it, as far as the log tells or somebody said."""
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
    """What it takes in memory, as far as the log tells."""
    notes: list[str]
    """Findings that ask for different values, and what cannot be set there."""
    others: list[OtherFix] = msgspec.field(default_factory=list)
    """Remedies of its findings that are not merged into these options, where it is known what starts it. Where nothing
    is merged, there are no codes and no steps. Added after the first release of v1: may be missing."""
