"""The table of textual prefixes."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from cachedoctor.inputs.envelope.shapes import HEAD, MONTHS, PASTED, SHAPED, TIMING, WEEKDAYS, WRITTEN
from cachedoctor.knowledge.late_patterns import late

_KNOWN_MAX = 256
_NAME = re.compile(rb"\(\?P<\w+>")
"""The begin of a group with a name."""
_LEVEL = rb"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|stdout|stderr)"
_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = rb"(?:Z|UTC|[+-]\d\d:?\d\d)"
_DATE = rb"\d{4}[-/]\d\d[-/]\d\d[ T]" + _CLOCK + rb"(?: ?" + _ZONE + rb")?"
_DATED = rb"(?:\[" + _DATE + rb"\]|" + _DATE + rb")"
ISO = rb"\d{4}-\d\d-\d\dT" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)"
_DIGIT_OR_LETTER = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# "host ident[pid]: ". Where a date alone can come before a body, "slot update_slots: " reads as host and ident: there
# the brackets are demanded (journald always writes them) or such hosts refused.
_HOST = rb"(?!(?:[IWED]|slot|srv|que|res|cmn|spec) |\d+\.\d\d\.)(?P<host>[^\s\[\]]{1,255}) "
_IDENT = rb"(?P<process>[^\s\[\]:]{1,128})"
_PID = rb":?\[\d*\]:(?: |$)"
"""A unit may call itself by a name that ends in a colon, ``llama-qwen:[1351]: ``."""
_PROCESS = _HOST + _IDENT + _PID


class WrapperPrefix(msgspec.Struct, frozen=True):
    """One wrapper: a row of the table."""

    name: str
    starts: bytes
    """First bytes that a line wrapped so can have."""
    strict: re.Pattern[bytes]
    """Matches where the prefix is certain; the group ``origin`` names the server, if any.

    Other groups name what a person may not want to show: ``host``, ``process``, ``zone``, ``data``."""
    loose: re.Pattern[bytes] | None = None
    """Matches the prefix before any text: trusted once ``strict`` has matched with the same origin."""


def _row(name: str, starts: bytes, strict: bytes, loose: bytes | None = None) -> WrapperPrefix:
    return WrapperPrefix(name, starts, late(strict), None if loose is None else late(loose))


HEADER = late(_DATED + rb" ?\[" + _LEVEL + rb"\](?:\[(?P<logger>[^\]]*)\])?[ \t]*")
"""A line of LM Studio that holds nothing but date and level: the text of the record is on the lines below."""

_TIME_OF_DAY = rb"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[AP]M)?"
_DAY = (
    rb"(?:(?:"
    + WEEKDAYS
    + rb",? )?(?:\d{1,2}[/ -]"
    + MONTHS
    + rb"(?:[/ -]\d{4})?|"
    + MONTHS
    + rb" {1,2}\d{1,2}(?:,? \d{4})?"
    rb"|\d{8}|\d{4}[/.-]\d\d[/.-]\d\d|\d\d[/.-]\d\d[/.-]\d{2,4}))"
)
_TIME = (
    rb"(?:(?:" + _DAY + rb",?[ T:])?" + _TIME_OF_DAY + rb"(?: ?" + _ZONE + rb")?"
    rb"|1\d{9}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?|\+?\d{1,9}(?:\.\d{1,9})?m?s)"
)
"""What a terminal or a script puts into brackets before a line: a time in any form, which names no model."""
_MARKS = _DATED + rb"(?: ?(?:[|-]|\[?" + _LEVEL + rb"\]?:?))*+ "
_SERVICE = rb"(?P<origin>[A-Za-z0-9][\w.@-]{0,254})"
_BRACKET = rb"\[(?P<origin>[^\[\]]{1,200})\](?: \|)? "
_ANGLE = rb"<(?P<origin>[^<>|\s]{1,200})> "
_STREAM = rb"(?P<logstream>[A-Za-z][\w.@$-]*+(?:/[\w.@$-]++){1,8}|[0-9a-f]{64}|i-[0-9a-f]{8,17})(?= )"
"""Log streams of CloudWatch as drivers name them: prefix/container/task, a container, an instance."""
_SHIPPED = rb"(?:" + ISO + rb" )?(?:" + WRITTEN + rb'|\{"|\[ {0,4}\d{1,5}\] )'
"""What kubectl and stern deliver: a line of a server, a record of one, or a router's line."""
_POD = rb"(?P<origin>[a-z][a-z0-9]*+-[a-z0-9.-]{1,250}) (?P<container>[a-z0-9][a-z0-9-]{0,62}) "
_SD_ELEMENT = rb"\[(?:[^\]\\]|\\.)*+\]"

# Rows with the same first byte are tried in this order. The order is fixed, not "last matched first", so
# that a line means the same wherever it stands; the first byte leaves few rows anyway.
TABLE = (
    _row(
        "journald short, syslog rfc3164",
        b"<JFMASOND",
        rb"(?:<\d{1,3}>)?" + MONTHS + rb" [ \d]\d " + _CLOCK + rb" " + _HOST + _IDENT + rb"(?::?\[\d*\])?:(?: |$)",
    ),
    _row(
        "journald short, host removed by hand",
        b"JFMASOND",
        MONTHS + rb" [ \d]\d " + _CLOCK + rb" {1,4}" + _IDENT + _PID,
    ),
    _row(
        "journald short-full", b"MTWFS", WEEKDAYS + rb" \d{4}-\d\d-\d\d " + _CLOCK + rb" (?P<zone>\S{1,40}) " + _PROCESS
    ),
    _row("journald short-iso", b"12", ISO + rb" " + _PROCESS),
    _row("journald short-unix", b"12", rb"\d{10}\.\d{6} " + _PROCESS),
    _row("journald short-monotonic", b"[", rb"\[ *\d{1,10}\.\d{6}\] " + _PROCESS),
    _row(
        "syslog rfc5424",
        b"<",
        rb"<\d{1,3}>1 (?:-|"
        + ISO
        + rb") (?P<host>\S{1,255}) (?P<process>\S{1,255}) (?P<pid>\S{1,255}) (?P<kind>\S{1,255})"
        + rb" (?P<data>-|(?:"
        + _SD_ELEMENT
        + rb")++)(?: (?:\xef\xbb\xbf)?|$)",
    ),
    _row("syslog priority", b"<", rb"<\d{1,3}>(?=" + HEAD + rb")"),
    _row("llama-server router", b"[", rb"\[(?P<origin> {4}\d| {3}\d\d|  \d{3}| \d{4}|\d{5})\](?: |$)"),
    _row("unix seconds of llama.cpp's log files, 2023 and 2024", b"[", rb"\[1\d{9}\](?: |$)"),
    _row("time in brackets", b"[", rb"\[" + _TIME + rb"\] (?=" + SHAPED + rb")", rb"\[" + _TIME + rb"\](?: |$)"),
    _row("time of day", b"012", _TIME_OF_DAY + rb" (?=" + SHAPED + rb")", _TIME_OF_DAY + rb"(?: |$)"),
    _row("kubectl --prefix", b"[", rb"\[pod/(?P<origin>[^\]\s]{1,400})\](?: |$)"),
    _row("kubectl --timestamps, aws logs tail", b"12", ISO + rb"(?: " + _STREAM + rb")?(?: |$)"),
    _row(
        "date before vLLM's own",
        b"[12",
        _DATED
        + rb" (?=(?:\([\w.-]{1,60}[^()\n]{0,80}\) )?"
        + rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d )",
    ),
    _row(
        "date",
        b"[12",
        _MARKS + rb"(?:(?P<logger>[\w.-]{1,64}):? )??(?=(?:\[[^\[\]]{1,200}\] )?" + SHAPED + rb")",
        _MARKS,
    ),
    _row(
        "Jan",
        b"[",
        rb"\[\d{4}-\d\d-\d\d\]\["
        + _CLOCK
        + rb"\]\[tauri_plugin_llamacpp(?:::\w{1,64}){0,4}\]\["
        + _LEVEL
        + rb"\] (?:\[llamacpp[^\]]{0,32}\]|jan-llama-worker:)(?: |$)",
    ),
    _row(
        "LocalAI",
        b"0123456789",
        rb"\d{1,2}:\d\d[AP]M (?:DBG|INF|WRN|ERR) GRPC\((?P<origin>[^\s()]{1,250})\): std(?:err|out)(?: |$)",
    ),
    _row("level", b"[", rb"\[" + _LEVEL + rb"\] (?=" + SHAPED + rb")"),
    _row("model in brackets", b"[", _BRACKET + rb"(?=" + SHAPED + rb")", _BRACKET),
    _row("model in angles", b"<", _ANGLE + rb"(?=" + SHAPED + rb")", _ANGLE),
    _row("stern", b"abcdefghijklmnopqrstuvwxyz", _POD + rb"(?=" + _SHIPPED + rb")", _POD),
    # Compose pads the longest name with one space of its own and puts another before the bar.
    _row("docker compose", _DIGIT_OR_LETTER, _SERVICE + rb"(?: {2,}+|(?<=[-_]\d) )\|(?: |$)"),
    _row(
        "compose, one space",
        _DIGIT_OR_LETTER,
        _SERVICE + rb" \| (?=" + SHAPED + rb")",
        _SERVICE + rb" \|(?: |$)",
    ),
    _row(
        "line number",
        b" \t0123456789",
        rb"[ \t]{0,8}\d{1,9}(?:(?:[ \t]{0,8}[:|-][ \t]?|[ \t]{1,8})(?=" + PASTED + rb")|[:\t-](?=" + TIMING + rb"))",
    ),
    _row(
        "quote",
        b"> \t",
        rb"(?:(?:> ?){0,4}[ \t]{0,8}(?=" + PASTED + rb")|(?:> ){1,4}(?=" + TIMING + rb"))",
        rb"(?:> ?){1,4}",
    ),
    _row(
        "grep",
        _DIGIT_OR_LETTER + b"_./~",
        rb"(?P<origin>[\w./~][\w./~+@-]{0,200}+):(?:\d{1,9}:(?="
        + PASTED
        + rb"|"
        + TIMING
        + rb")|(?="
        + PASTED
        + rb"))",
    ),
)
_BODY = late(HEAD)


@cache
def _together(rows: tuple[WrapperPrefix, ...]) -> tuple[tuple[WrapperPrefix, ...], re.Pattern[bytes]]:
    """Return the rows, and a pattern that matches a line if one of them does; most bytes have the rows of others."""
    return rows, late(b"|".join(_NAME.sub(b"(?:", row.strict.pattern) for row in rows))


_BY_FIRST_BYTE = {
    byte: _together(tuple(row for row in TABLE if byte in row.starts)) for row in TABLE for byte in row.starts
}


class Prefixes:
    """Peels one textual prefix at a time and remembers which uncertain ones this log has shown to be real."""

    def __init__(self) -> None:
        self._known: set[tuple[str, bytes | None]] = set()
        self._without = False
        """The last line had no prefix, so that one look tells the same of the next one, as a rule."""

    @property
    def known(self) -> bool:
        """Whether an uncertain prefix was shown to be real."""
        return bool(self._known)

    def peel(self, line: bytes) -> tuple[bytes, bytes | None] | None:
        """Return the body and its origin, or None when no prefix of the table starts ``line``."""
        match = self.find(line)
        return None if match is None else (line[match.end() :], origin_of(match))

    def find(self, line: bytes) -> re.Match[bytes] | None:
        """Match the prefix that starts ``line``, or return None."""
        if not line or _BODY.match(line):
            return None
        found = _BY_FIRST_BYTE.get(line[0])
        if found is None or (self._without and not self._known and found[1].match(line) is None):
            self._without = True
            return None
        self._without = False
        for row in found[0]:
            if match := row.strict.match(line):
                if row.loose and len(self._known) < _KNOWN_MAX:
                    self._known.add((row.name, origin_of(match)))
                return match
            loose = row.loose.match(line) if self._known and row.loose else None
            if loose is not None and (row.name, origin_of(loose)) in self._known:
                return loose
        self._without = True
        return None


def origin_of(match: re.Match[bytes]) -> bytes | None:
    """Name of the server that a matched prefix gives, if its kind gives one."""
    groups = match.re.groupindex
    if "origin" not in groups:
        return match["logstream"] if "logstream" in groups else None
    origin = match["origin"].strip()
    return within(origin, match["container"]) if "container" in groups else origin


def within(outer: bytes | None, inner: bytes | None) -> bytes | None:
    """Name a server by what an outer and an inner wrapper call it."""
    return inner or outer if not (outer and inner) else outer + b"/" + inner


def row_of(match: re.Match[bytes]) -> WrapperPrefix:
    """Row of the table that a matched prefix belongs to."""
    return next(row for row in TABLE if match.re.pattern in (row.strict.pattern, row.loose and row.loose.pattern))
