"""Reads what stands before a message of vLLM: time, process, and the line of the source that printed it.

Knows the prefixes of all versions. Knows no message.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

_PREFIX = re.compile(
    rb"(?:\((?P<process>[\w.-]{1,60})[^()]{0,80}\) )?"
    rb"\[?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,4}(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)"
    rb"(?:[.,]\d{1,6})? \[?(?P<file>[\w./-]{1,200}\.py):(?P<source>\d{1,5})\]"
)
_HEAD = 1 << 13
"""Bytes of a line in which its prefix is looked for; progress bars may be glued before it."""
_LEAP = 2024
"""A leap year, so that every day of the calendar is one; vLLM writes none."""
_HALF_YEAR = timedelta(days=183)


class Prefix(NamedTuple):
    """Parts of a prefix; None where the line has none."""

    process: str | None = None
    """``APIServer``, ``EngineCore_DP0`` ..."""
    time: datetime | None = None
    """In the zone of the server, in a year of no meaning."""
    file: str | None = None
    """Source file that printed it; at the debug level with its folders."""
    source: int | None = None
    """Number of the line in it."""

    @property
    def iso(self) -> str | None:
        """``--MM-DDTHH:MM:SS``."""
        return None if self.time is None else f"--{self.time:%m-%dT%H:%M:%S}"


def read(line: bytes) -> Prefix:
    """Read the prefix of a line without its wrapper."""
    found = _PREFIX.search(line[:_HEAD])
    if found is None:
        return Prefix()
    process = None if found["process"] is None else found["process"].decode("latin-1")
    text = f"{_LEAP}-{found['month'].decode()}-{found['day'].decode()} {found['clock'].decode()}"
    try:
        time = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        time = None
    return Prefix(process, time, found["file"].decode("latin-1"), int(found["source"]))


def seconds(earlier: datetime, later: datetime) -> float:
    """Seconds between two times without a year; those of a log that goes on over New Year as well."""
    passed = later - earlier
    if passed < -_HALF_YEAR:
        passed += timedelta(days=366)
    return passed.total_seconds()
