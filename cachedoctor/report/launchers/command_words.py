"""A command line as text: its words with their places, and the same text with other options.

The text of every word that stays is kept as it was typed, quotes, ``~`` and variables included. Options are looked up
by all their spellings; a value is the next word, of vLLM and SGLang also what comes after ``=``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from cachedoctor.knowledge import cmdline, server_options
from cachedoctor.knowledge.engines import PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import OptionChange

_OPERATOR = late(r"[0-9]*[<>]+&?[0-9-]*|\|[|&]?|&&?|;")
"""Tokens that end a command's arguments or redirect its output."""
_WORD = late(r"""(?:[^\s'"\\;|&<>]|\\[^\n]|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
_COMMENT = late(r"\#[^\n]*")
_NUMBER = late(r"-\d")
_LLAMA = late(r"(?:^|[/\\:=])(?:llama-server|server)(?:\.exe)?$", re.IGNORECASE)
_ENGINE = late(rf"(?:^|[/\\])(?:{PATTERN})$|^(?:{PATTERN})\.[\w.]+$")
_ASSIGNMENT = late(r"([A-Za-z_]\w*)=")


class Word(msgspec.Struct, frozen=True):
    """One word of a command line."""

    start: int
    end: int
    text: str
    """Without its quotes."""
    operator: bool = False


def words(line: str) -> list[Word]:
    """Split a text as a shell does; comments and ``\\`` at the end of a line are not words."""
    found = []
    at = 0
    while at < len(line):
        comment = _COMMENT.match(line, at) if at == 0 or line[at - 1].isspace() else None
        operator = _OPERATOR.match(line, at)
        match = comment or operator or _WORD.match(line, at)
        if match is None:
            at += 1
            continue
        if comment is None:
            text = match[0] if operator else _plain(match[0])
            found.append(Word(match.start(), match.end(), text, operator is not None))
        at = match.end()
    return found


def _plain(raw: str) -> str:
    try:
        return "".join(shlex.split(raw))
    except ValueError:
        return raw


def spellings(name: str) -> frozenset[str]:
    """Every name of the command line that sets or unsets the same option."""
    entry = server_options.BY_NAME.get(server_options.plain(name))
    if entry is None:
        bare = name.replace("_", "-")
        other = bare.removeprefix("--no-") if bare.startswith("--no-") else f"no-{bare.removeprefix('--')}"
        return frozenset({bare, f"--{other}"})
    option = entry[0]
    return frozenset(n.text for names in (option.names, option.off) for n in names)


def takes_value(name: str) -> bool | None:
    """Whether the next word is the option's value; None if the option is not in the table."""
    entry = server_options.BY_NAME.get(server_options.plain(name))
    return None if entry is None else entry[0].kind != "switch" and entry[2]


class Span(msgspec.Struct, frozen=True):
    """An option that is given: from its name to the end of its value, as words by their numbers."""

    first: int
    last: int


def given(found: Sequence[Word], name: str, begin: int = 0) -> list[Span]:
    """Where an option is given under any of its names."""
    wanted = spellings(name)
    spans = []
    for at in range(begin, len(found)):
        text = "" if found[at].operator else found[at].text
        head, equals, _ = text.partition("=")
        if not text.startswith("-") or head.replace("_", "-") not in wanted:
            continue
        value = takes_value(head)
        if value is None:  # of vLLM and SGLang: what does not begin with a dash
            value = not equals
        nothing = equals or not value or at + 1 >= len(found) or _is_name(found[at + 1])
        spans.append(Span(at, at if nothing else at + 1))
    return spans


def _is_name(word: Word) -> bool:
    return word.operator or (word.text.startswith("-") and not _NUMBER.match(word.text))


def image_at(found: Sequence[Word]) -> int | None:
    """Number of the word that names the container image; None if no container is run."""
    texts = [word.text for word in found]
    container = cmdline.container_at(texts)
    program = next((at for at, text in enumerate(texts) if _LLAMA.search(text) or _ENGINE.search(text)), None)
    if container is None or (program is not None and program < container):
        return None
    at = container + 1 + cmdline.image_at(texts[container + 1 :])[0]
    return at if at < end_of_command(found, container) else None


def program_at(found: Sequence[Word]) -> int | None:
    """Number of the word that starts a server; None if there is none."""
    image = image_at(found)
    if image is not None:
        return image
    for at, word in enumerate(found):
        if _LLAMA.search(word.text) or _ENGINE.search(word.text):
            return at
    return None


def end_of_command(found: Sequence[Word], begin: int) -> int:
    """Number of the word after the last argument."""
    return next((at for at in range(begin, len(found)) if found[at].operator), len(found))


def changed(line: str, changes: Sequence[OptionChange], quoted: bool = True) -> str:
    """Write a command line with its options changed; variables come before it.

    Args:
        line: as it was typed, over several lines or one.
        changes: what to set and what to leave out.
        quoted: values are quoted for a shell.
    """
    for change in changes:
        line = _variable(line, change) if change.variable else _option(line, change, quoted)
    return line


def _variable(line: str, change: OptionChange) -> str:
    found = words(line)
    text = f"{change.name}={shlex.quote(change.value or '')}"
    image = image_at(found)
    for at, word in enumerate(found):
        match = _ASSIGNMENT.match(word.text)
        if match is None or match[1] != change.name:
            continue
        flag = at > 0 and image is not None and found[at - 1].text in ("-e", "--env")
        if change.remove:
            return _without(line, found[at - flag].start, word.end)
        return line[: word.start] + text + line[word.end :]
    if change.remove or not found:
        return line
    if image is not None:
        return line[: found[image].start] + f"-e {text} " + line[found[image].start :]
    return line[: found[0].start] + f"{text} " + line[found[0].start :]


def _option(line: str, change: OptionChange, quoted: bool) -> str:
    found = words(line)
    begin = program_at(found)
    spans = given(found[: end_of_command(found, begin or 0)], change.name, 0 if begin is None else begin + 1)
    text = " ".join(shlex.quote(word) if quoted else word for word in change.words)
    for span in reversed(spans[0 if change.remove else 1 :]):
        line = _without(line, found[span.first].start, found[span.last].end)
    if change.remove:
        return line
    if spans:
        return line[: found[spans[0].first].start] + text + _apart(line[found[spans[0].last].end :])
    end = end_of_command(found, begin or 0)
    at = found[end - 1].end if end else len(line)
    return line[:at] + _joint(line, found[:end]) + text + _apart(line[at:])


def _apart(rest: str) -> str:
    """Separate a redirection from the word before it: ``4>log`` redirects the stream of that number."""
    return f" {rest}" if rest.startswith(("<", ">")) else rest


def _joint(line: str, found: Sequence[Word]) -> str:
    """What separates the last option from the text before it: a line break with its indentation if it is on its own
    row; else a space."""
    for before, word in zip(reversed(found[:-1]), reversed(found), strict=False):
        between = line[before.end : word.start]
        if "\n" in between and word.text.startswith("-"):
            row = between.rfind("\n")
            return (" \\" if between[:row].endswith("\\") else "") + between[row:]
    return " " if found else ""


def _without(line: str, start: int, end: int) -> str:
    """Remove a part, with the spaces before it; a row that is left empty goes as well."""
    begin = start
    while begin and line[begin - 1] in " \t":
        begin -= 1
    row_ends = line[end:].lstrip(" \t")
    if begin and line[begin - 1] == "\n" and row_ends.startswith(("\\\n", "\n")):
        rest = row_ends.removeprefix("\\")
        return line[:begin] + rest.removeprefix("\n")
    if not begin:
        return line[end:].lstrip(" \t")
    return line[:begin] + line[end:]
