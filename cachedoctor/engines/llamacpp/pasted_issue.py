"""Reads the text before the log in a pasted issue, and skips log lines that a paste contains twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from cachedoctor.engines.catalogue.base import CLOCK
from cachedoctor.engines.llamacpp.excerpts import PREFIXED, plain_of
from cachedoctor.knowledge import builds, cmdline
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, GivenOption

_LEAST = 3
"""Minimum number of lines in a run; fewer may be quoted only to point at them."""
_ONCE = late(CLOCK + rb" +[IWEDT] |.{0,80}?prompt eval time = +\d")
_QUOTE = b"> \t\r"


def without_repeats(data: bytes) -> bytes:
    """Empty the lines of repeated runs that follow an empty line or a fence; all other lines keep their numbers."""
    lines = data.split(b"\n")
    plain = [line.strip(_QUOTE) for line in lines]
    first: dict[bytes, int] = {}
    at = after = 0
    while at < len(plain):
        above = first.setdefault(plain[at], at) if _ONCE.match(plain[at]) else at
        begin, end = _run(plain, above, at, after) if above < at else (at, at)
        if end - begin >= _LEAST:
            if not plain[begin - 1] or FENCE.match(plain[begin - 1]):
                lines[begin:end] = [b""] * (end - begin)
            at = after = end
        else:
            at += 1
    return b"\n".join(lines)


def _run(plain: list[bytes], above: int, at: int, after: int) -> tuple[int, int]:
    """The lines around ``at``, none of them before ``after``, that are those around ``above``."""
    begin, end, distance = at, at, at - above
    while end < len(plain) and end - distance < begin and plain[end - distance] == plain[end]:
        end += 1
    while begin > after and begin > distance and plain[begin - 1] and plain[begin - 1 - distance] == plain[begin - 1]:
        begin -= 1
    return begin, end


_LINE_MAX = 1 << 12
_LINES_MAX = 300
FENCE = late(rb"[> \t]*(?:```|~~~)")
"""The beginning of a line that opens or closes a block, quoted as well."""
_HEADING = late(r"(?:#{1,6} |\*\*)[ *]*([^#*\n]{1,80})")
_FORM = frozenset(
    {"name and version", "operating systems", "ggml backends", "hardware", "models", "first bad commit", "command line",
     "problem description & steps to reproduce", "relevant log output"}
)  # fmt: skip
"""Headings of the form, which have no marks on the page."""
_VERSION = late(
    r"\b(?:version|build):? {0,8}b?(\d{4,7}) \([0-9a-f]{6,40}\)"
    r"|\bversion:? {0,8}v?\d[\w.-]{0,30} \(build (\d{4,7}), commit [0-9a-f]{6,40}\)",
    re.IGNORECASE,
)
"""``version: 6123 (8ad7b3e6)``; from about b10470 on ``version: 0.6.0-dev (build 11457, commit 5ad1c5da0)``."""
_OWN = late(r"build: \d+ \(\w+\) with ")
"""A log begins so: it names the build of its own server, and of no other one below."""
_TAG = late(r"(?:\b|-)b(\d{4,6})\b|(?:^|[\s:-])(v\d{1,3}\.\d{1,3}\.\d{1,4})(?![\w.-])")
"""``b6123``, or the end of an image's tag, or a release, ``v0.6.0``; only below a heading."""
_VARIABLE = r"\$(?:\w++|\{\w++\})"
_PLAIN = late(
    rf"""((?:[\w \t./:,=@%+~-]|{_VARIABLE}|'[^'\x00-\x1f]*+'|"(?:[^"`$\\!\x00-\x1f]|{_VARIABLE})*+")+?)"""
    r"""(?:(?:[|&;]|[ \t]\d?[<>](?!\()).*)?""",
    re.ASCII,
)
"""What a shell takes as words alone (no substitution, no glob), up to a pipe or another command, which is left out."""
_CONTINUED = ("\\", "^", "`")
_BEFORE_PROGRAM = frozenset({"sudo", "nohup", "exec", "env", "time"})
_SIGNS = ("$", "#", "%", ">")
"""Ends of the word before a command in a terminal."""
_PROGRAMS = frozenset({"llama-server", "llama-server.exe"})
_CONTAINERS = frozenset({"docker", "podman"})


class Issue(msgspec.Struct, frozen=True):
    """What the text above a log shows about its server; contradicting values count as unknown."""

    build: int | None = None
    build_at: int | None = None
    """Index of the first line that names it."""
    given: list[GivenOption] = []
    given_at: int | None = None
    """Index of the first line of the command."""
    cmdline: str | None = None
    """The command on one row; None if a shell would do more than start it, as anybody may have written it."""
    blocks: int = 0
    """Fences with lines of a server's log. Each may be from another run, and from another build."""


class _Given(msgspec.Struct, frozen=True):
    options: list[GivenOption]
    at: int
    """Index of its first line in the input."""
    plain: str | None


class _PastedLine(msgspec.Struct, frozen=True):
    at: int
    """Index of the command in the input."""
    text: str
    section: str
    """The heading above it, in small letters."""
    fenced: bool


def read_issue(lines: list[bytes]) -> Issue:
    """Read the lines of an input up to its log, and count the code fences around the log."""
    above, blocks = list(_above_log(lines[:_LINES_MAX])), _blocks(lines)
    build, build_at = _build(above)
    command = _given(above)
    if command is None:
        return Issue(build, build_at, blocks=blocks)
    return Issue(build, build_at, command.options, command.at, command.plain, blocks)


def _blocks(lines: list[bytes]) -> int:
    """Count the fences with a line of a server's log."""
    count, inside, waits = 0, False, False
    for line in lines:
        if FENCE.match(line):
            inside = waits = not inside
        elif waits and PREFIXED.match(line[:_LINE_MAX]):
            count, waits = count + 1, False
    return count


def _above_log(lines: list[bytes]) -> Iterator[_PastedLine]:
    """Give the lines above the first one of a server's log; of a quote in the prose, if the log itself is fenced."""
    fences = [at for at, line in enumerate(lines) if FENCE.match(line)]
    logged = [at for at, line in enumerate(lines) if PREFIXED.match(line[:_LINE_MAX])]
    fenced = [at for at in logged if sum(fence < at for fence in fences) % 2]
    section, inside = "", False
    for at, line in enumerate(lines[: (fenced or logged or [len(lines)])[0]]):
        if FENCE.match(line):
            inside = not inside
            continue
        text = line[:_LINE_MAX].decode("utf-8", "replace").strip("> \t\r")
        heading = None if inside else _HEADING.match(text)
        if heading is not None or (not inside and text.lower() in _FORM):
            section = (text if heading is None else heading[1]).lower()
        else:
            yield _PastedLine(
                at, plain_of(text.encode()).decode("utf-8", "replace") if not inside else text, section, inside
            )


def _build(lines: list[_PastedLine]) -> tuple[int | None, int | None]:
    """Return the one build that is named, and where: below the heading, as printed or as a tag, else anywhere."""
    below = [line for line in lines if "version" in line.section]
    lines = [line for line in lines if _OWN.match(line.text) is None]
    ways = (below, _VERSION), (below, _TAG), (lines, _VERSION)
    named = [
        [(build, one.at) for one in some for words in way.findall(one.text) if (build := builds.number("".join(words)))]
        for some, way in ways
    ]
    found = next(filter(None, named), [])
    return found[0] if len({build for build, _ in found}) == 1 else (None, None)


def _given(lines: list[_PastedLine]) -> _Given | None:
    """Return the one command that is given: below its heading, else anywhere."""
    below: list[_Given] = []
    anywhere: list[_Given] = []
    for at, line in enumerate(lines):
        named = "command" in line.section
        if (found := _options(lines, at, named=named)) is not None:
            (below if named else anywhere).append(found)
    commands = below or anywhere
    return commands[0] if commands and all(one.options == commands[0].options for one in commands) else None


def _options(lines: list[_PastedLine], at: int, *, named: bool) -> _Given | None:
    """Return the command that begins in a line, with its options; None if there is none."""
    line = lines[at]
    words = line.text.split()
    asked = bool(words) and words[0].endswith(_SIGNS)
    command = _command(words[1:] if asked else words)
    if not command or not (line.fenced or named or asked):
        return None
    whole = line.text.split(None, 1)[1] if asked else line.text.lstrip()
    for before, more in zip(lines[at:], lines[at + 1 :], strict=False):
        if not (before.text.endswith(_CONTINUED) or more.text.startswith("-")) or not more.text:
            break
        whole = f"{whole.rstrip(''.join(_CONTINUED)).rstrip()} {more.text}"
    whole = whole.rstrip("".join(_CONTINUED)).rstrip()
    try:
        options = cmdline.parse(whole)
    except CacheDoctorError:
        return None
    plain = _PLAIN.fullmatch(whole)
    return _Given(options, line.at, None if plain is None else plain[1].rstrip()) if options else None


def _command(words: list[str]) -> str:
    """Return a command that starts the server, without what a terminal prints before it; empty for prose."""
    at = next((i for i, word in enumerate(words) if "=" not in word and word not in _BEFORE_PROGRAM), None)
    if at is None:
        return ""
    program, next_word = re.split(r"[/\\]", words[at].strip("\"'"))[-1], "".join(words[at + 1 : at + 2])
    starts = program in _PROGRAMS and (not next_word or next_word.startswith(("-", *_CONTINUED)))
    contained = program in _CONTAINERS and next_word == "run" and any("llama" in word for word in words)
    return " ".join(words) if starts or contained else ""
