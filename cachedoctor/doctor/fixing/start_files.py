"""The command line that a file starts a server with, in the place of one that was typed."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from cachedoctor.doctor.fixing.patches import by_name, read
from cachedoctor.knowledge.cmdline import is_program
from cachedoctor.launchers.started_commands import Command, commands
from cachedoctor.model import CacheDoctorError, Launcher

_FILES = ("shell", "compose", "systemd", "kubernetes", "llama-swap")
"""Launchers that read a file."""
_NAMED = 8
"""Servers named in an error."""


class Start(NamedTuple):
    """How a server is started, as a file says it."""

    line: str
    launcher: Launcher
    file: str
    """As ``cachedoctor fix --file`` takes it, with ``--service`` where one was named."""


def start_of(given: str, launcher: Launcher | None = None) -> Start | None:
    """Read what ``--cmdline`` names: a file, or ``FILE:NAME`` of a service, container or model in it; else None.

    Args:
        launcher: what reads the file, where its name and content are not to tell.

    Raises:
        CacheDoctorError: it is a file in which one server is not to be found.
    """
    path, name = (given, None) if os.path.isfile(given) else _named(given)
    if path is None or is_program(path):
        return None
    text = read(path).replace("\r\n", "\n")
    try:
        read_by = launcher if launcher in _FILES else by_name(path, text)
        found = commands(text, read_by)
    except CacheDoctorError as error:
        what = error.message.removeprefix("--file: ").removeprefix(f"{path}: ")
        raise CacheDoctorError(f"--cmdline: {path}: {what}", error.hint) from None
    file = shlex.quote(path) if name is None else f"{shlex.quote(path)} --service {shlex.quote(name)}"
    return Start(_the_one(found, path, name).line, read_by, file)


def _named(given: str) -> tuple[str | None, str | None]:
    path, _, name = given.rpartition(":")
    return (path, name) if os.path.isfile(path) else (None, None)


def _the_one(found: list[Command], path: str, name: str | None) -> Command:
    chosen = found if name is None else [command for command in found if command.name == name]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        what = "nothing in it starts llama-server, vLLM or SGLang"
        raise CacheDoctorError(f"--cmdline: {path}: {what}", "give the command line: --cmdline 'llama-server -m ...'")
    names = ", ".join(command.name for command in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    what = (
        f"several servers in it: {names}{more}"
        if name is None
        else f"not one server {name} in it; there are: {names}{more}"
    )
    raise CacheDoctorError(
        f"--cmdline: {path}: {what}", f"name one: --cmdline {shlex.quote(f'{path}:{found[0].name}')}"
    )
