"""What a line shows without being parsed: control characters, server-shaped bodies, wall clocks."""

from __future__ import annotations

import re
from datetime import datetime

from cachedoctor.knowledge.late_patterns import late

_FUNCTION = rb"[\w()~]{1,40}"
HEAD = (
    rb"(?:\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] "
    rb"|(?:[IWED] )?(?:slot +" + _FUNCTION + rb": id +-?\d|(?:srv|que|res|cmn|spec) +" + _FUNCTION + rb":(?: |$)))"
)
"""The start of a line that only llama-server writes: its uptime, or ``slot func: id``, ``srv  func:`` and kin."""
OWN = (
    rb"(?:[0-9]++\.[0-9][0-9]\.[0-9][0-9][0-9]\.[0-9][0-9][0-9] |s(?:lot (?!apply_checkp| *+\|)|rv (?! *+\|))"
    rb"|prompt eval time = | {6,7}(?:eval|total) time = )"
)
"""A faster version of the same, including bare lines of timing blocks, but without lines of forks and services of these
names.

Such a line has no wrapper, and no other engine wrote it."""

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
PASTED = (
    rb"(?:" + HEAD + rb"|" + _LOGGED + rb"|\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d|\[\d\d:\d\d:\d\d\] "
    rb"|\d{4} \d\d:\d\d:\d\d ds4-server: |INFO:[\w.]{2,60}:\[|[A-Za-z0-9][\w.@-]{0,254}(?: {2,16}|(?<=[-_]\d) )\| )"
)
"""The start of a line after which people paste a quote or a number: of any server, with a date or a service before
it."""
WRITTEN = rb"(?:" + SHAPED + rb"|" + _LOGGED + rb")"
"""A body that a server may have written: enough to find which text of a record is the line."""

MONTHS = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
WEEKDAYS = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"

_SHAPED = late(SHAPED)
_NEXT_SHAPED = late(rb"\n(?=" + SHAPED + rb")")
_WRITTEN = late(WRITTEN)
_NEXT_WRITTEN = late(rb"\n(?=" + WRITTEN + rb")")

_RANKED = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: [A-Z_]{2,8}\d{1,4}){1,6}\] (?!" + SHAPED + rb")"
"""The inside of ``[2026-07-04 04:31:24 DP0 TP0] ``, after which SGLang writes: no wrapper, and every line has it."""

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
    + rb"|[ \t]{1,8}+(?:slot|srv|que|res|cmn|spec|[IWED] |\d|"
    + PASTED
    + rb")|[A-Za-z][\w.@-]*+ ++\||[\w./~][\w./~+@-]{0,200}+:(?:\d{1,9}:(?=[^ ]|"
    + TIMING
    + rb")|"
    + PASTED
    + rb")|[a-z][a-z0-9]*+-[a-z0-9.-]++ [a-z0-9][a-z0-9-]*+ )"
)
# Led by a literal, for which sre then scans; "^" would be tried at every byte.
_NEXT_CANDIDATE = late(rb"\n(?!" + OWN + rb")(?=" + _CANDIDATE + rb")")
_PLAIN, _STRANGE = late(OWN), late(rb"\n(?!" + OWN + rb"|\Z)")

_ESCAPES = late(rb"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78cDEHMNOZ])")
_COLOURS = late(rb"(?<!u001[bB])(?<!x1[bB])(?<!033)\[(?:0|1|2|3\d|9\d|0;\d{1,2}|1;\d{1,2})m(?!\])")
"""Colour codes that lost their ESC byte on a web page; in a JSON record the byte is only escaped."""
_RESET = late(rb"\[0m")
_NO_BREAK = late(rb"(?:[:|=]|\btask|\bid)\xc2\xa0")
_TABS = b": id\t", b"srv\t", b"slot\t"
_PROGRESS = late(rb"^(?!" + HEAD + rb")[^\n]*\r(?=" + HEAD + rb")", re.MULTILINE)


def is_shaped(body: bytes) -> bool:
    """True if ``body`` looks like a llama.cpp log line (wrapper already stripped)."""
    return _SHAPED.match(body) is not None


def shaped(lines: bytes) -> list[int]:
    """Offsets of the lines that are shaped so."""
    starts = [match.end() for match in _NEXT_SHAPED.finditer(lines)]
    return [0, *starts] if is_shaped(lines) else starts


def is_written(body: bytes) -> bool:
    """Whether a server of any kind may have written ``body``."""
    return _WRITTEN.match(body) is not None


def first_written(lines: bytes) -> bytes | None:
    """Return the first of these lines that a server of any kind may have written."""
    start = 0
    if not is_written(lines):
        found = _NEXT_WRITTEN.search(lines)
        if found is None:
            return None
        start = found.end()
    return lines[start:].partition(b"\n")[0]


def strip_controls(text: bytes) -> bytes:
    """Remove NUL bytes, terminal escape sequences, and the carriage return of a line end.

    Other space characters, which a web page or a table put into the server's own words, become spaces again. What a
    line becomes depends on that line alone, not on the others of a block.
    """
    if b"\0" in text:
        text = text.replace(b"\0", b"")
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if _is_changed(text):
        text = b"\n".join([_unchanged(line) if _is_changed(line) else line for line in text.split(b"\n")])
    return text


def _is_changed(text: bytes) -> bool:
    """Whether a web page or a table changed colours or spaces of a line; a single byte is found fastest."""
    return (
        (b"[" in text and _RESET.search(text) is not None)
        or (b"\xc2" in text and _NO_BREAK.search(text) is not None)
        or (b"\t" in text and any(mark in text for mark in _TABS))
    )


def _unchanged(line: bytes) -> bytes:
    if _RESET.search(line):
        line = _COLOURS.sub(b"", line)
    if _NO_BREAK.search(line):
        line = line.replace(b"\xc2\xa0", b" ")
    return line.replace(b"\t", b" ") if any(mark in line for mark in _TABS) else line


def drop_progress(text: bytes) -> bytes:
    """Drop a progress display that a server line overwrites (``50%\\r100%\\r0.01.002.003 I srv ...``).

    Any other carriage return stays: what comes before it may be the record, and what follows it a prompt's text.
    """
    return _PROGRESS.sub(b"", text) if b"\r" in text else text


def is_plain(block: bytes) -> bool:
    """Whether every line of a block begins as those of llama-server do: without wrappers, and of no other engine."""
    return _PLAIN.match(block) is not None and _STRANGE.search(block) is None


def candidates(block: bytes) -> list[int]:
    """Offsets of the lines that start as a known wrapper may; all others are bodies already."""
    starts = [match.end() for match in _NEXT_CANDIDATE.finditer(block)]
    first = block[: block.find(b"\n") + 1 or None]
    return [0, *starts] if _NEXT_CANDIDATE.match(b"\n" + first) else starts


_WIDEST = 400
"""Characters of a row: no terminal is wider."""
_GO_ON = 20
"""One row in this many continues in the next if a terminal wrapped the lines; the same share are server lines."""


def are_broken(rows: list[bytes]) -> bool:
    """Whether a terminal broke lines into these rows: many begin no line, and their first word did not fit before."""
    widths = list(map(width_of, rows))
    widest, written = columns(widths), [is_written(row) for row in rows]
    if not widest or widest > _WIDEST or sum(written) * _GO_ON < len(rows):
        return False
    after = zip(rows[1:], written[1:], widths, strict=False)
    return sum(not begins and has_no_room(width, row, widest) for row, begins, width in after) * _GO_ON >= len(rows)


def width_of(row: bytes) -> int:
    """Characters of a row."""
    return len(row.decode("utf-8", "replace"))


def has_no_room(width: int, row: bytes, widest: int) -> bool:
    """Whether the first word of a row did not fit into the one before, which is so wide."""
    words = row.split(None, 1)
    return bool(words) and width <= widest < width + 1 + width_of(words[0])


def columns(widths: list[int]) -> int:
    """Width of the terminal that broke lines into rows of these widths; a few of many may have been joined again."""
    return sorted(widths)[-1 - len(widths) // _GO_ON] if widths else 0


_HEAD = 300
"""Bytes at the beginning of a line in which a wrapper has its time; a JSON record may have it at its end."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<clock>(?:[01]\d|2[0-4]):[0-5]\d:[0-6]\d)(?:[.,](?P<part>\d{1,6})\d{0,3})?"
_ZONE = r" ?(?P<zone>Z\b|UTC\b|[+-]\d\d:?\d\d(?!\d))?"
_DATE = late(r"(?<!\d)(?P<date>\d{4}[-/](?:0\d|1[0-2])[-/][0-3]\d)[ T]" + _CLOCK + _ZONE)
_NANOS = late(r"[.,]\d{6}(\d{1,3})")
_TIME = late(_DATE.pattern + r"|\d{9,20}(?:\.\d{1,9})?")
_PROMPT = late(r"\b(?:old|new): ")
"""After it llama-server prints text of prompts."""
_MONTH = late(rf"(?:^|[ >|])(?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-3]\d) {_CLOCK} ")


def wall_time(stored: bytes) -> str | None:
    """Return the time of a stored line as ISO 8601, ``--MM-DDTHH:MM:SS`` without a year, or None.

    Times are as the wrapper wrote them, in its zone; a zone that is not an offset is left out.
    """
    head = stored[:_HEAD]
    if stored[:1] == b"{":  # docker writes it last, after the text
        head = stored[-_HEAD:]
        if _DATE.search(head.decode("latin-1")) is None:
            head = stored[:_HEAD]
        text = head.decode("latin-1")
    else:
        text = _PROMPT.split(head.decode("latin-1"), maxsplit=1)[0]
    dated = _DATE.search(text)
    # A date after a stamp of syslog may be the message's.
    found = _MONTH.search(text, 0, dated.start() if dated else len(text))
    if found is not None and found["month"] in _MONTHS:
        return f"--{_MONTHS.index(found['month']) + 1:02d}-{int(found['day']):02d}T{_clock(found)}"
    if dated is None:
        return None
    zone = dated["zone"] or ""
    offset = "Z" if zone in ("Z", "UTC") else f"{zone[:3]}:{zone[-2:]}" if zone else ""
    return f"{dated['date'].replace('/', '-')}T{_clock(dated)}{offset}"


def ends(stored: bytes) -> bytes:
    """Return the parts of a stored line that contain its time: with them alone it has the same time."""
    return stored if len(stored) <= 2 * _HEAD else stored[:_HEAD] + stored[-_HEAD:]


def is_time(text: str) -> bool:
    """Whether ``text`` is a time and nothing else: ISO 8601, or a number of any unit."""
    return _TIME.fullmatch(text) is not None


def moment(value: object) -> int | float | None:
    """Return a number that grows with the time ``value``: nanoseconds of ISO 8601, or the number that it is.

    None for what is neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not is_time(value):
        return None
    if value[:1].isdigit() and "-" not in value[:9] and "/" not in value[:9]:
        return float(value) if "." in value else int(value)
    found = _DATE.match(value)
    if found is None:
        return None
    zone = (found["zone"] or "Z").replace("UTC", "Z")
    try:
        seconds = datetime.fromisoformat(f"{found['date'].replace('/', '-')}T{found['clock']}{zone}").timestamp()
    except ValueError:
        return None
    return int(seconds) * 10**9 + int((found["part"] or "").ljust(6, "0")) * 1000 + _nanos(value)


def _nanos(value: str) -> int:
    found = _NANOS.search(value)
    return 0 if found is None else int(found[1].ljust(3, "0"))


def _clock(found: re.Match[str]) -> str:
    return found["clock"] + (f".{found['part']}" if found["part"] else "")
