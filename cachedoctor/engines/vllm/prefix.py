"""Reads what stands before a message of vLLM: time, process, and the line of the source that printed it.

``(APIServer pid=3047) INFO 11-20 23:44:58 [loggers.py:335]``.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

_PREFIX = re.compile(
    rb"(?:\((?P<process>[\w.-]{1,60})[^()]{0,80}\) )?"
    rb"\[?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,4}(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)"
    rb"(?:[.,]\d{1,6})? \[?(?P<file>[\w./-]{1,200}\.py):(?P<source>\d{1,5})\]"
)
_HEAD = 1 << 13
"""Bytes of a line in which its prefix is looked for; progress bars may be glued before it."""
_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month of a leap year, so that every day of the calendar is one; vLLM writes no year."""
_BEFORE = (0, *accumulate(_MONTHS))
"""Days before each month."""
_DAY = 86_400
_HALF_YEAR = 183 * _DAY


class Prefix(NamedTuple):
    """Parts of a prefix; None where the line has none."""

    process: str | None = None
    """``APIServer``, ``EngineCore_DP0`` ..."""
    time: int | None = None
    """Seconds since the begin of a leap year, in the zone of the server."""
    iso: str | None = None
    """``--MM-DDTHH:MM:SS``."""
    file: str | None = None
    """Source file that printed it; at the debug level with its folders."""
    source: int | None = None
    """Number of the line in it."""


def read(line: bytes) -> Prefix:
    """Read the prefix of a line without its wrapper."""
    found = _PREFIX.search(line, 0, _HEAD)
    if found is None:
        return Prefix()
    process, _, month, day, clock, file, source = ((part or b"").decode("latin-1") for part in found.groups())
    time = _seconds(int(month), int(day), int(clock[:2]), int(clock[3:5]), int(clock[6:]))
    return Prefix(process or None, time, None if time is None else f"--{month}-{day}T{clock}", file, int(source))


def _seconds(month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Seconds since the begin of the year; None for what no calendar and no clock has."""
    if not (1 <= month <= len(_MONTHS) and 1 <= day <= _MONTHS[month - 1] and hour < 24 and minute < 60 > second):
        return None
    return (_BEFORE[month - 1] + day - 1) * _DAY + hour * 3600 + minute * 60 + second


def seconds(earlier: int, later: int) -> float:
    """Seconds between two times without a year; those of a log that goes on over New Year as well."""
    passed = later - earlier
    return float(passed + _BEFORE[-1] * _DAY if passed < -_HALF_YEAR else passed)
