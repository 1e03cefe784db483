"""How lines look from outside: control characters, server-shaped bodies, lines worth a look. Must not know any wrapper.

Every pattern here meets hostile text: repeats are bounded or possessive, so that no line costs more than its length.
"""

from __future__ import annotations

import re

from cachedoctor.knowledge.later_pattern import LaterPattern

_FUNCTION = rb"[\w()~]{1,40}"
HEAD = (
    rb"(?:\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] "
    rb"|(?:[IWED] )?(?:slot +" + _FUNCTION + rb": id +-?\d|(?:srv|que|res|cmn|spec) +" + _FUNCTION + rb":(?: |$)))"
)
"""The start of a line that only llama-server writes: its uptime, or ``slot func: id``, ``srv  func:`` and kin."""

TIMING = rb"(?: *(?:prompt eval|eval|total) time =)"
"""The bare lines of a timing block. Their leading spaces belong to them."""

_LIBRARY = rb"(?:build(?:_info)?|main|system[_ ]info|print_info|(?:llama|ggml|common|load|init|sched|graph)\w{0,40}): "
SHAPED = rb"(?: {0,8}" + HEAD + rb"|" + TIMING + rb"|" + _LIBRARY + rb")"
"""A body that a llama.cpp server may have written; enough to trust a wrapper that other programs use too."""

_LOGGED = (
    rb"(?:(?:\([\w.-]{1,60}[^()\n]{0,80}\) )?\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[ \t]{1,4}\d\d-\d\d \d\d:\d\d:\d\d"
    rb"|(?:\([\w.-]{1,60}[^()\n]{0,80}\) )?INFO: {5}\S"
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: [A-Z_]{2,8}\d{1,4}){0,6}\] "
    rb"|time=\S{10,40} level=[A-Z]{4,5} )"
)
"""The start of a line of vLLM, of uvicorn, of SGLang, of ollama."""
WRITTEN = rb"(?:" + SHAPED + rb"|" + _LOGGED + rb")"
"""A body that a server may have written: enough to tell which text of a record is the line."""

MONTHS = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
WEEKDAYS = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"

_SHAPED = LaterPattern(SHAPED)
_NEXT_SHAPED = LaterPattern(rb"\n(?=" + SHAPED + rb")")
_WRITTEN = LaterPattern(WRITTEN)
_NEXT_WRITTEN = LaterPattern(rb"\n(?=" + WRITTEN + rb")")

_RANKED = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: [A-Z_]{2,8}\d{1,4}){1,6}\] (?!" + SHAPED + rb")"
"""The inside of ``[2026-07-04 04:31:24 DP0 TP0] ``, behind which SGLang writes: no wrapper, and every line has it."""

# Every line of every log is tried, so the commonest lines ("0.01.058.254 I ", "slot ", "srv ") must fail within a few
# characters. Lines that start "<|" or "</" are prompt text of chat templates.
_CANDIDATE = (
    rb"(?:\[(?!"
    + _RANKED
    + rb")|[{>]|<[^|/]|\d++[^.\n\d]|\d{10}\.\d{6} | (?! )|(?:"
    + MONTHS
    + rb"|"
    + WEEKDAYS
    + rb") |time="
    rb"|[ \t]{1,8}+(?:slot|srv|que|res|cmn|spec|[IWED] |\d)|[A-Za-z][\w.@-]*+ ++\|"
    rb"|[a-z][a-z0-9]*+-[a-z0-9.-]++ [a-z0-9][a-z0-9-]*+ )"
)
_FIRST = re.compile(_CANDIDATE)
# Led by a literal, for which sre then scans; "^" would be tried at every byte.
_LATER = re.compile(rb"\n(?=" + _CANDIDATE + rb")")

_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78cDEHMNOZ])"
)
_PROGRESS = LaterPattern(rb"^(?!" + HEAD + rb")[^\n]*\r(?=" + HEAD + rb")", re.MULTILINE)


def is_shaped(body: bytes) -> bool:
    """Whether a llama.cpp server may have written ``body``, as those see it who take wrappers off."""
    return _SHAPED.compiled.match(body) is not None


def shaped(lines: bytes) -> list[int]:
    """Offsets of the lines that are shaped so."""
    starts = [match.end() for match in _NEXT_SHAPED.compiled.finditer(lines)]
    return [0, *starts] if is_shaped(lines) else starts


def is_written(body: bytes) -> bool:
    """Whether a server of any kind may have written ``body``."""
    return _WRITTEN.compiled.match(body) is not None


def first_written(lines: bytes) -> bytes | None:
    """Return the first of these lines that a server of any kind may have written."""
    start = 0
    if not is_written(lines):
        found = _NEXT_WRITTEN.compiled.search(lines)
        if found is None:
            return None
        start = found.end()
    return lines[start:].partition(b"\n")[0]


def strip_controls(text: bytes) -> bytes:
    """Remove NUL bytes, terminal escape sequences, and the carriage return of a line end."""
    if b"\0" in text:
        text = text.replace(b"\0", b"")
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    return text


def drop_progress(text: bytes) -> bytes:
    """Drop a progress display that a server line overwrites (``50%\\r100%\\r0.01.002.003 I srv ...``).

    Any other carriage return stays: what stands before it may be the record, and what follows it a prompt's text.
    """
    return _PROGRESS.compiled.sub(b"", text) if b"\r" in text else text


def candidates(block: bytes) -> list[int]:
    """Offsets of the lines that start as a known wrapper may; all others are bodies already."""
    starts = [match.end() for match in _LATER.finditer(block)]
    if _FIRST.match(block):
        starts.insert(0, 0)
    return starts
