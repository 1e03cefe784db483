"""A fix as a patch of the file that starts the server. The file is read, never written."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.doctor.fixing.fixes import asked_of
from cachedoctor.knowledge.cmdline import is_program
from cachedoctor.knowledge.engines import SERVERS
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, Fix, Launcher, Session
from cachedoctor.report.launchers import text_files, yaml_file
from cachedoctor.report.launchers.forms import LaunchRequest
from cachedoctor.report.launchers.started_commands import StartCommand, commands

_FILES = ("shell", "compose", "systemd", "kubernetes", "llama-swap")
"""Launchers that read a file."""
_NAMED = 8
"""Servers named in an error."""


class Start(NamedTuple):
    """How a server is started, as a file says it."""

    line: str
    launcher: Launcher
    file: str
    """File as ``cachedoctor fix --file`` takes it, with ``--service`` if one was named."""


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


def _the_one(found: list[StartCommand], path: str, name: str | None) -> StartCommand:
    chosen = found if name is None else [command for command in found if command.name == name]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        what = f"nothing in the file starts {SERVERS}"
        raise CacheDoctorError(f"--cmdline: {path}: {what}", "give the command line: --cmdline 'llama-server -m ...'")
    names = ", ".join(command.name for command in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    what = (
        f"the file starts several servers: {names}{more}"
        if name is None
        else f"the file does not have exactly one server {name}; it has {names}{more}"
    )
    raise CacheDoctorError(
        f"--cmdline: {path}: {what}", f"select one server: --cmdline {shlex.quote(f'{path}:{found[0].name}')}"
    )


_MOST = 4 << 20
"""Bytes; what starts a server is short."""
_ROW = late(r"[^\n]*\n|[^\n]+")
_CONTROL = late(r"\r(?!\n)|[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_YAML: frozenset[Launcher] = frozenset({"compose", "kubernetes", "llama-swap"})


def patch(
    fixes: Sequence[Fix], sessions: Sequence[Session], path: str, launcher: Launcher | None, service: str | None
) -> tuple[str, list[str]]:
    """Give a unified diff of a file, empty where nothing changes, and what it leaves out.

    Raises:
        CacheDoctorError: the file cannot be read, the server is not in it, or the report has several servers to fix.
    """
    text = read(path)
    own = [fix for fix in fixes if fix.options]
    notes = [
        f"{step.text}: {'; '.join(step.commands)}" for fix in fixes for step in fix.steps if step.where == "client"
    ]
    if not own:
        return "", [*notes, "no server option has to change"]
    if len(own) > 1:
        names = ", ".join(str(fix.origin or fix.path) for fix in own[:8])
        raise CacheDoctorError(f"--file: the fixes change several servers ({names})", "give the log of one server")
    fix = own[0]
    asked = asked_of(fix, sessions, launcher or fix.launcher)
    if service is not None:
        asked = msgspec.structs.replace(asked, name=service)
    crlf = "\r\n" in text
    if crlf and text.count("\r\n") != text.count("\n"):
        raise CacheDoctorError(f"{path}: has both CRLF and LF line ends", "convert the file to one kind of line end")
    new = edited(text.replace("\r\n", "\n"), path, launcher, asked)
    new = new.replace("\n", "\r\n") if crlf else new
    notes += [*fix.notes, *fix.costs]
    name = where = _printable(path)
    if new != text and os.path.basename(name) != name and name.startswith(os.pardir):
        name = os.path.basename(name)  # neither patch nor git apply leave the folder they run in
        notes.append(f"apply the patch in the folder of {where}")
    name += "\t" * (" " in name)  # that is where a name with blanks ends, to patch and to git
    rows = difflib.unified_diff(_ROW.findall(text), _ROW.findall(new), f"a/{name}", f"b/{name}")
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows), notes


def _printable(path: str) -> str:
    """The path as it is shown: relative, on one row, of the file itself: patch and git apply change no symlink."""
    name = os.path.relpath(os.path.realpath(path))
    if not name.isprintable():
        raise CacheDoctorError("--file: the name of the file contains unprintable characters", "rename it")
    return name


def read(path: str) -> str:
    """Read what starts a server; raises ``CacheDoctorError`` where it is not text that may be shown."""
    if not os.path.isfile(path):
        raise CacheDoctorError(
            f"{path}: is not a file", "give the file that starts the server: compose.yaml, a unit, a script"
        )
    with open(path, "rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise CacheDoctorError(f"{path}: is larger than 4 MiB", "give the file that starts the server")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise CacheDoctorError(f"{path}: is not UTF-8 text", "give the file that starts the server") from None
    if _CONTROL.search(text):
        raise CacheDoctorError(
            f"{path}: contains control characters",
            "a patch with control characters could change how a terminal behaves",
        )
    return text


def edited(text: str, path: str, launcher: Launcher | None, asked: LaunchRequest) -> str:
    """Write it with other options; raises ``CacheDoctorError`` where that is not sure to be right."""
    if launcher in ("ollama", "lm-studio", "jan"):
        raise CacheDoctorError(f"--file: there is no file to patch for {launcher}", "remove --file")
    if launcher is None:
        launcher = by_name(path, text)
    new = _edited(text, launcher, asked)
    if _edited(new, launcher, asked) != new:  # what was written does not read as what was meant: quotes left open
        raise CacheDoctorError(
            "--file: the command in the file cannot be read reliably", "change the command by hand, without --file"
        )
    return new


def _edited(text: str, launcher: Launcher, asked: LaunchRequest) -> str:
    if launcher in _YAML:
        return yaml_file.edited(text, launcher, asked)
    if launcher == "systemd":
        return text_files.unit(text, asked.changes)
    return text_files.script(text, asked.changes)


def by_name(path: str, text: str) -> Launcher:
    """Tell what reads a file; raises ``CacheDoctorError`` where it is YAML of something else."""
    if path.endswith((".yaml", ".yml", ".json")):
        kind = yaml_file.kind_of(text)
        if kind is None:
            what = f"{path}: is not a compose, Kubernetes or llama-swap file"
            raise CacheDoctorError(what, "use --launcher to name the program that reads the file")
        return kind
    return "systemd" if "ExecStart=" in text else "shell"
