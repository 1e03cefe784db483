"""Files that hold a command line as text: shell scripts and units of systemd. Everything else in them stays."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cachedoctor.launchers.command_words import changed, image_at, program_at, words
from cachedoctor.launchers.unit_form import setting
from cachedoctor.model import CacheDoctorError, OptionChange

_EXEC = re.compile(r"^ExecStart=(?=\S)", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset({
    "env", "exec", "ionice", "nice", "nohup", "numactl", "python", "python3", "run", "setsid", "stdbuf", "sudo",
    "systemd-run", "taskset", "time", "uv",
})  # fmt: skip
"""Programs that start another one, named behind them."""
_GO_ON = re.compile(r"\\[ \t]*$")


def script(text: str, changes: Sequence[OptionChange]) -> str:
    """Write a shell script with other options of its server.

    Raises:
        CacheDoctorError: no command in it starts one, or several do.
    """
    rows = text.splitlines(keepends=True)
    found = [at for at, row in enumerate(rows) if _starts(row)]
    if len(found) != 1:
        many = "no command in it starts a server" if not found else "several commands in it start a server"
        raise CacheDoctorError(f"--file: {many}", "give the script that holds the command line of llama-server")
    first = last = found[0]
    while first and _GO_ON.search(rows[first - 1].rstrip("\n")) and not rows[first - 1].lstrip().startswith("#"):
        first -= 1
    while last + 1 < len(rows) and _GO_ON.search(rows[last].rstrip("\n")):
        last += 1
    command = "".join(rows[first : last + 1])
    own = [change for change in changes if not change.variable]
    new = changed(command, own if image_at(words(command)) is None else changes)
    head = "".join(rows[:first])
    if image_at(words(command)) is None:
        for change in changes:
            head, new = _variable(head, new, change)
    return head + new + "".join(rows[last + 1 :])


def _starts(row: str) -> bool:
    found = words(row)
    at = program_at(found) if found else None
    if at is None or _ASSIGNMENT.match(found[at].text):
        return False
    return image_at(found) is not None or all(_leads(word.text) for word in found[:at])


def _leads(word: str) -> bool:
    """Whether a word may stand in front of the program that is started."""
    return word.startswith("-") or word.rpartition("/")[2] in _WRAPPERS or _ASSIGNMENT.match(word) is not None


def _variable(head: str, command: str, change: OptionChange) -> tuple[str, str]:
    """Set a variable where the script sets it already, else on a row in front of the command."""
    if not change.variable:
        return head, command
    given = re.compile(rf"^([ \t]*(?:export[ \t]+)?){re.escape(change.name)}=\S*[ \t]*\n", re.MULTILINE)
    value = f"{change.name}={shlex.quote(change.value or '')}"
    if change.remove:
        return given.sub("", head), changed(command, [change])
    if given.search(head):
        return given.sub(lambda m: f"{m[1]}{value}\n", head), command
    indentation = command[: len(command) - len(command.lstrip(" \t"))]
    return f"{head}{indentation}export {value}\n", command


def unit(text: str, changes: Sequence[OptionChange]) -> str:
    """Write a unit of systemd with other options of its server.

    Raises:
        CacheDoctorError: it has no ExecStart, or several.
    """
    found = list(_EXEC.finditer(text))
    if len(found) != 1:
        raise CacheDoctorError(
            f"--file: {'no' if not found else 'more than one'} ExecStart= in it", "give the unit that starts the server"
        )
    begin = found[0].end()
    end = begin
    while True:
        newline = text.find("\n", end)
        if newline < 0 or not _GO_ON.search(text[end:newline]):
            end = len(text) if newline < 0 else newline
            break
        end = newline + 1
    command = changed(text[begin:end], [change for change in changes if not change.variable])
    head = text[: found[0].start()]
    for change in changes:
        if not change.variable:
            continue
        head = re.sub(rf'^Environment="?{re.escape(change.name)}=[^\n]*\n', "", head, flags=re.MULTILINE)
        if not change.remove:
            head += f"Environment={setting(f'{change.name}={change.value}')}\n"
    return f"{head}ExecStart={command}{text[end:]}"
