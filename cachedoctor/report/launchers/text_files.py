"""Files that hold a command line as text: shell scripts and units of systemd. Everything else in them stays."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, OptionChange
from cachedoctor.report.launchers.command_words import changed, image_at, program_at, words
from cachedoctor.report.launchers.forms import setting

_EXEC = late(r"^ExecStart=(?=\S)", re.MULTILINE)
_ASSIGNMENT = late(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset({
    "env", "exec", "ionice", "nice", "nohup", "numactl", "python", "python3", "run", "setsid", "stdbuf", "sudo",
    "systemd-run", "taskset", "time", "uv",
})  # fmt: skip
"""Programs that start another one, named after them."""
_BETWEEN = frozenset({"&&", ";"})
"""Separators between two commands of one row."""
_OTHER_SHELL = late(r"[ \t][\^`][ \t]*(?:\n|$)")
"""How cmd and PowerShell continue in the next row."""
_ODD = r"(?<!\\)(?:\\\\)*+\\"
"""An odd number of backslashes: the last one is not escaped by another."""
_GO_ON = late(_ODD + r"[ \t]*$")
_BLANKS = late(_ODD + r"[ \t]+(?:\n|$)")
"""Such a row continues in some programs, but not in a shell."""


def script(text: str, changes: Sequence[OptionChange]) -> str:
    """Write a shell script with other options of its server.

    Raises:
        CacheDoctorError: no command in it starts one, or several do, or it is not a script of a POSIX shell.
    """
    head, command, rest = script_parts(text)
    own = [change for change in changes if not change.variable]
    new = changed(command, own if image_at(words(command)) is None else changes)
    if image_at(words(command)) is None:
        for change in changes:
            head, new = _variable(head, new, change)
    return head + new + rest


def script_parts(text: str) -> tuple[str, str, str]:
    """Cut a script into what comes before the command of its server, that command, and what follows.

    Raises:
        CacheDoctorError: no command in it starts one, or several do, or it is not a script of a POSIX shell.
    """
    rows = text.splitlines(keepends=True)
    found = [at for at, row in enumerate(rows) if _starts(row)]
    if len(found) != 1:
        many = "no command in the file starts a server" if not found else "several commands in the file start a server"
        raise CacheDoctorError(f"--file: {many}", "give the script that contains the llama-server command")
    first = last = found[0]
    while first and _GO_ON.search(rows[first - 1].rstrip("\n")) and not rows[first - 1].lstrip().startswith("#"):
        first -= 1
    while last + 1 < len(rows) and _GO_ON.search(rows[last].rstrip("\n")):
        last += 1
    command = "".join(rows[first : last + 1])
    _check(command)
    return "".join(rows[:first]), command, "".join(rows[last + 1 :])


def _starts(row: str) -> bool:
    found = words(row)
    at = program_at(found) if found else None
    if at is None or _ASSIGNMENT.match(found[at].text):
        return False
    begin = max((n + 1 for n in range(at) if found[n].operator and found[n].text in _BETWEEN), default=0)
    return image_at(found) is not None or all(_leads(word.text) for word in found[begin:at])


def _check(command: str) -> None:
    """Refuse a command that continues where this does not look."""
    _check_ends(command)
    if _OTHER_SHELL.search(command):
        raise CacheDoctorError(
            "--file: the file is a cmd or PowerShell script", "change the command by hand, without --file"
        )
    try:
        shlex.split(command, comments=True)
    except ValueError:
        hint = "change the command by hand, without --file"
        raise CacheDoctorError("--file: a quote in the command continues over the end of its line", hint) from None


def _check_ends(command: str) -> None:
    if _BLANKS.search(command):
        raise CacheDoctorError("--file: the command has spaces after a \\ at the end of a line", "remove them")


def _leads(word: str) -> bool:
    """Whether a word may come before the program that is started."""
    return word.startswith("-") or word.rpartition("/")[2] in _WRAPPERS or _ASSIGNMENT.match(word) is not None


def _variable(head: str, command: str, change: OptionChange) -> tuple[str, str]:
    """Set a variable where the script sets it already, else on a row before the command."""
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
        CacheDoctorError: it has no ExecStart, or several, or one that starts something else.
    """
    head, command, rest = unit_parts(text)
    parts = words(command)
    if image_at(parts) is not None:  # a container has variables of its own
        return f"{head}ExecStart={changed(command, changes)}{rest}"
    command = changed(command, [change for change in changes if not change.variable])
    for change in filter(lambda change: change.variable, changes):
        head, above = _unit_variable(head, change)
        rest, below = _unit_variable(rest, change)
        if not change.remove and not above and not below:
            head += f"Environment={setting(f'{change.name}={change.value}')}\n"
    return f"{head}ExecStart={command}{rest}"


def unit_parts(text: str) -> tuple[str, str, str]:
    """Cut a unit into what comes before ``ExecStart=``, the command after it, and what follows.

    Raises:
        CacheDoctorError: it has no ExecStart, or several, or one that starts something else.
    """
    found = list(_EXEC.finditer(text))
    if len(found) != 1:
        raise CacheDoctorError(
            f"--file: {'no' if not found else 'more than one'} ExecStart= in the file",
            "give the unit that starts the server",
        )
    begin = found[0].end()
    end = begin
    while True:
        newline = text.find("\n", end)
        if newline < 0 or not _GO_ON.search(text[end:newline]):
            end = len(text) if newline < 0 else newline
            break
        end = newline + 1
        if text[end : end + 1] in ("#", ";"):
            raise CacheDoctorError("--file: there is a comment inside ExecStart=", "remove the comment first")
    command = text[begin:end]
    _check_ends(command)
    if program_at(words(command)) is None:
        raise CacheDoctorError(
            "--file: ExecStart= in the file starts no server", "give the unit that starts the server"
        )
    return text[: found[0].start()], command, text[end:]


def _unit_variable(text: str, change: OptionChange) -> tuple[str, bool]:
    """Set a variable in every row that sets it, other variables of these rows stay; and whether there was one."""
    rows = text.splitlines(keepends=True)
    hit = False
    for number, row in enumerate(rows):
        if not row.startswith("Environment="):
            continue
        head, own = "Environment=", row.removeprefix("Environment=")
        given = [word for word in words(own) if word.text.partition("=")[0] == change.name]
        new = "" if change.remove else setting(f"{change.name}={change.value}")
        for word in reversed(given):
            hit = True
            own = own[: word.start] + new + own[word.end :]
        if given:
            rows[number] = f"{head}{own.lstrip()}" if own.strip() else ""
    return "".join(rows), hit
