"""The command lines of the servers that a file starts: compose, Kubernetes, llama-swap, a unit of systemd, a script.

``services: {llama: {image: ..., command: -m q.gguf -c 8192}}`` is ``llama-server -m q.gguf -c 8192``. Variables that
are in the file count where llama-server reads them; what the file takes from elsewhere (``env_file``) is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, Launcher
from cachedoctor.report.launchers import yaml_file
from cachedoctor.report.launchers.command_words import program_at, words
from cachedoctor.report.launchers.forms import one_command
from cachedoctor.report.launchers.text_files import script_parts, unit_parts

_ITS_OWN = late(r"LLAMA_\w+=")
"""Variables of llama-server; others may hold secrets, and do not concern the cache."""
_EXPORTED = late(r"^[ \t]*(?:export[ \t]+)?(LLAMA_\w+=.*)$", re.MULTILINE)
_SET_BY_UNIT = late(r"^Environment=(.*)$", re.MULTILINE)
_GOES_ON = late(r"(?:(?<![ \t])[ \t]++)?\\\n\s*")
_AROUND = late(r"^exec\s+|(?<!\s)\s++\"?\$[@*]\"?$")
"""Parts of a script that are not the command: pasted into a shell, ``exec`` would end the shell."""
_IMAGES = (
    (late(r"llama[-_.]?(?:cpp|server)", re.IGNORECASE), ["llama-server"]),
    *((late(name, re.IGNORECASE), [name, "serve"]) for name in ENGINES),
)
"""Images that start a server by themselves, and what they start: the command holds arguments only."""


class StartCommand(NamedTuple):
    """What starts one server."""

    name: str
    """Service, container or model; empty if the file has none."""
    line: str
    """Command line as a shell would start it."""


def commands(text: str, launcher: Launcher) -> list[StartCommand]:
    """Give the command of every server in a file; what starts no server is passed over.

    Raises:
        CacheDoctorError: it cannot be read, or holds no server that could be told.
    """
    if launcher == "systemd":
        head, command, rest = unit_parts(text)
        given = [word.text for own in _SET_BY_UNIT.findall(head + rest) for word in words(own)]
        return [StartCommand("", _line(given, _in_a_row(command)))]
    if launcher == "shell":
        head, command, _ = script_parts(text)
        given = [word.text for own in _EXPORTED.findall(head) for word in words(own)[:1]]
        return [StartCommand("", _line(given, _AROUND.sub("", _in_a_row(command))))]
    found = ((name, _started(one, launcher)) for name, one in yaml_file.servers(text, launcher))
    return [StartCommand(name, line) for name, line in found if line is not None]


def _in_a_row(command: str) -> str:
    return one_command(_GOES_ON.sub(" ", command))


def _line(variables: list[str], command: str) -> str:
    own = [shlex.quote(variable) for variable in variables if _ITS_OWN.match(variable)]
    return " ".join([*own, command])


def _started(one: dict[str, Any], launcher: Launcher) -> str | None:
    """The command of a service, container or model; None if it starts no server."""
    if launcher == "llama-swap":
        command = one.get("cmd")
        return _line(list(_environment(one.get("env"))), _in_a_row(command)) if isinstance(command, str) else None
    compose = launcher == "compose"
    parts = (one.get("entrypoint"), one.get("command")) if compose else (one.get("command"), one.get("args"))
    given = [word for part in parts for word in _words(part)]
    variables = list(_environment(one.get("environment" if compose else "env")))
    if compose:
        given, variables = ([word.replace("$$", "$") for word in every] for every in (given, variables))
    whole = next((word for word in given if " " in word and program_at(words(word)) is not None), None)
    if whole is not None:  # sh -c "llama-server ..."
        return _line(variables, whole)
    line = shlex.join(given)
    if program_at(words(line)) is None:
        image = _text(one.get("image"))
        program = next((program for known, program in _IMAGES if known.search(image)), None)
        if program is None:
            return None
        line = shlex.join([*program, *given])
    return _line(variables, line)


def _words(part: Any) -> list[str]:
    if isinstance(part, str):
        try:
            return shlex.split(part)
        except ValueError as error:
            raise CacheDoctorError(
                f"--file: a command in the file cannot be read ({str(error).lower()})", "fix the file first"
            ) from None
    return [_text(word) for word in part] if isinstance(part, list) else []


def _text(value: Any) -> str:
    """The text of an argument; lists, mappings, and integers too long for Python are not text."""
    try:
        if not isinstance(value, (dict, list)):
            return str(value)
    except ValueError:
        pass
    raise CacheDoctorError("--file: a command in the file has an argument that is not text", "fix the file first")


def _environment(part: Any) -> Iterator[str]:
    """``NAME=value`` of a mapping, a list of them, or a list of names with values; not what comes from elsewhere."""
    if isinstance(part, dict):
        part = [{"name": name, "value": value} for name, value in part.items()]
    for one in part if isinstance(part, list) else []:
        if isinstance(one, str) and "=" in one:
            yield one
        elif isinstance(one, dict) and isinstance(value := one.get("value"), (str, int, float)):
            yield f"{_text(one.get('name'))}={_text(value).lower() if isinstance(value, bool) else _text(value)}"
