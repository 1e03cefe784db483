"""Dates and times of many shapes. Knows how they are written; knows no prompt structure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cachedoctor.prompts.recognisers.base import Difference, Recognition, covering

_FULL_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DAY = rf"(?:{_FULL_DAY}|Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?"
)
_YEAR = r"(?:19|20)\d\d"
_TIME = r"(?:[01]?\d|2[0-3])[:h][0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
_HOUR = r"(?:1[0-2]|0?[1-9])\s?[AaPp]\.?[Mm]\b\.?"
_ZONE = r"(?:\s?(?:Z\b|UTC|GMT|[A-Z]{3,4}\b)?(?:\s?[+-]\d\d(?::?\d\d)?)?)"
# Two-digit years only between two-digit numbers: 2.1.36 and 10/9/8 are no dates.
_NUMERIC = (
    rf"(?:{_YEAR}([-/.])(?:1[0-2]|0?[1-9])\1(?:3[01]|[12]\d|0?[1-9])"
    rf"|(?:3[01]|[12]\d|0?[1-9])([-/.])(?:3[01]|[12]\d|0?[1-9])\2{_YEAR}"
    r"|(?:3[01]|[12]\d|0[1-9])([-/])(?:3[01]|[12]\d|0[1-9])\3\d\d"
    rf"|{_YEAR}年\d{{1,2}}月(?:\d{{1,2}}日)?)"
)
_WORDY = (
    rf"(?:{_MONTH}\s{{1,2}}(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?\b(?:,?\s{_YEAR})?"
    rf"|(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th|\.)?[\s-]{_MONTH}(?:,?[\s-]{_YEAR})?"
    rf"|{_MONTH},?\s{_YEAR})"
)
_CLOCK = rf"(?:{_TIME}|{_HOUR}){_ZONE}"
STAMP = re.compile(
    rf"(?<![\w.:$€£/-])(?:(?:{_DAY},?\s)?(?:{_NUMERIC}|{_WORDY})(?:(?:T|[,\s]\s?(?:at\s)?|_){_CLOCK}(?:\s{_YEAR})?)?"
    rf"|(?:{_DAY},?\s)?{_CLOCK}|{_FULL_DAY})(?!\w|[.:/]\d)"
)
_NUMBER = r"(?:\d{1,6}|an?|one|two|a few|several|less than a)"
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|[smhd])"
_AGO = re.compile(
    rf"(?<![\w.])(?:(?:about\s)?{_NUMBER}\s?{_UNIT}(?:(?:,|\sand)?\s{_NUMBER}\s?{_UNIT})?\s(?:ago|from now)|just now"
    r"|yesterday|today)\b"
)
_EPOCH = re.compile(r"(?<![\w.+$€£-])(?:\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19})(?![\w]|\.\d)")
_ANY = re.compile(rf"{STAMP.pattern}|(?P<epoch>{_EPOCH.pattern})")
_FIRST, _LAST = 1_300_000_000, 2_200_000_000
"""Seconds since 1970 that a clock may show: 2011 to 2039."""
_APART = 400 * 86_400
"""Seconds; two clock values of one prompt lie no further apart, two telephone numbers do."""
HAS_DATE = re.compile(rf"{_YEAR}|[A-Za-z]{{3}}|\d[-/]\d")


def timestamp(d: Difference) -> Recognition | None:
    """A date, a time, a weekday, a span such as ``5 minutes ago``, or seconds since 1970."""
    for pattern, name in ((STAMP, ""), (_AGO, "age"), (_EPOCH, "epoch")):
        found = covering(d, pattern)
        if found is None:
            continue
        a, b = (m.group().rstrip() for m in found)
        if name == "epoch" and not _clock(a, b):
            continue
        field = name or ("date" if HAS_DATE.search(a) else "time")
        words = {"age": "a time span", "epoch": "a clock value in seconds since 1970"}.get(field, f"a {field}")
        return Recognition("timestamp", a, b, f"{words} changed", field)
    return None


def stamps(text: str) -> Iterator[re.Match[str]]:
    """Dates, times and clock values in seconds since 1970, in their order; no ages such as ``5 minutes ago``."""
    for found in _ANY.finditer(text):
        if found["epoch"] is None or _FIRST <= int(found["epoch"][:10]) <= _LAST:
            yield found


def _clock(a: str, b: str) -> bool:
    if len(a.partition(".")[0]) != len(b.partition(".")[0]):
        return False
    first, second = int(a[:10]), int(b[:10])
    return _FIRST <= first <= _LAST and _FIRST <= second <= _LAST and abs(second - first) <= _APART
