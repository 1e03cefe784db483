"""Reads the wall clock that a wrapper puts before a line. Knows one stored line; must not know any message."""

from __future__ import annotations

import re
from datetime import datetime

_HEAD = 300
"""Bytes at the beginning of a line in which a wrapper has its time; a JSON record may have it at its end."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<clock>(?:[01]\d|2[0-4]):[0-5]\d:[0-6]\d)(?:[.,](?P<part>\d{1,6})\d{0,3})?"
_ZONE = r" ?(?P<zone>Z\b|UTC\b|[+-]\d\d:?\d\d(?!\d))?"
_DATE = re.compile(r"(?<!\d)(?P<date>\d{4}[-/](?:0\d|1[0-2])[-/][0-3]\d)[ T]" + _CLOCK + _ZONE)
_NANOS = re.compile(r"[.,]\d{6}(\d{1,3})")
_TIME = re.compile(_DATE.pattern + r"|\d{9,20}(?:\.\d{1,9})?")
_PROMPT = re.compile(r"\b(?:old|new): ")
"""Behind it llama-server prints text of prompts."""
_MONTH = re.compile(rf"(?:^|[ >|])(?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-3]\d) {_CLOCK} ")


def wall_time(stored: bytes) -> str | None:
    """Return the time of a stored line as ISO 8601, ``--MM-DDTHH:MM:SS`` without a year, or None.

    Times are as the wrapper wrote them, in its zone; a zone that is no offset is left out.
    """
    head = stored[:_HEAD]
    if stored[:1] == b"{":  # docker writes it last, behind the text
        head = stored[-_HEAD:]
        if _DATE.search(head.decode("latin-1")) is None:
            head = stored[:_HEAD]
        text = head.decode("latin-1")
    else:
        text = _PROMPT.split(head.decode("latin-1"), maxsplit=1)[0]
    dated = _DATE.search(text)
    # A date behind a stamp of syslog may be the message's.
    found = _MONTH.search(text, 0, dated.start() if dated else len(text))
    if found is not None and found["month"] in _MONTHS:
        return f"--{_MONTHS.index(found['month']) + 1:02d}-{int(found['day']):02d}T{_clock(found)}"
    if dated is None:
        return None
    zone = dated["zone"] or ""
    offset = "Z" if zone in ("Z", "UTC") else f"{zone[:3]}:{zone[-2:]}" if zone else ""
    return f"{dated['date'].replace('/', '-')}T{_clock(dated)}{offset}"


def ends(stored: bytes) -> bytes:
    """Return the parts of a stored line in which its time stands: with them alone it has the same."""
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
