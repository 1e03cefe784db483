"""Values that programs put into prompts: dates, times, ids, counters, paths, the state of a git repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.recognisers.base import (
    FirstDifference,
    Recognition,
    covering,
    goes_on_alike,
    label,
    value_start,
)

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
# Two-digit years only between two-digit numbers: 2.1.36 and 10/9/8 are not dates.
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
STAMP = late(
    rf"(?<![\w.:$€£/-])(?:(?:{_DAY},?\s)?(?:{_NUMERIC}|{_WORDY})(?:(?:T|[,\s]\s?(?:at\s)?|_){_CLOCK}(?:\s{_YEAR})?)?"
    rf"|(?:{_DAY},?\s)?{_CLOCK}|{_FULL_DAY})(?!\w|[.:/]\d)"
)
_NUMBER = r"(?:\d{1,6}|an?|one|two|a few|several|less than a)"
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|[smhd])"
_AGO = late(
    rf"(?<![\w.])(?:(?:about\s)?{_NUMBER}\s?{_UNIT}(?:(?:,|\sand)?\s{_NUMBER}\s?{_UNIT})?\s(?:ago|from now)|just now"
    r"|yesterday|today)\b"
)
_EPOCH = late(r"(?<![\w.+$€£-])(?:\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19})(?![\w]|\.\d)")
_ANY = late(rf"{STAMP.pattern}|(?P<epoch>{_EPOCH.pattern})")
_FIRST, _LAST = 1_300_000_000, 2_200_000_000
"""Seconds since 1970 that a clock may show: 2011 to 2039."""
_APART = 400 * 86_400
"""Maximum seconds between two clock values of one prompt; telephone numbers differ by more."""
HAS_DATE = late(rf"{_YEAR}|[A-Za-z]{{3}}|\d[-/]\d")


def timestamp(d: FirstDifference) -> Recognition | None:
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


UUID = late(r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])")
PREFIXED = late(
    r"(?<![A-Za-z0-9])(?:req|call|functions?|toolu|msg|chatcmpl|cmpl|resp|ses|sess|session|run|trace|span|item|fc|rs"
    r"|evt|thread|thr|asst|prt|usr|user|id|srvtoolu|tool|task|job|conv|chat|file|nonce)[_-](?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{6,}"
)
_HEX = late(r"(?<![A-Za-z0-9])(?:0x)?(?:[0-9a-f]{6,128}|[0-9A-F]{6,128})(?![A-Za-z0-9])")
_BASE62 = late(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{10,128}(?![A-Za-z0-9_-])")
_TOKEN = late(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_+/=-]{4,128}(?![A-Za-z0-9_-])")
_ID_LABEL = late(r"(?:^|[^a-z])(?:id|uid|guid|nonce|salt|seed|trace|cachebuster|etag)$|(?<=[a-z])I[dD]$", re.I)

_INTEGER = late(r"(?<![\w.,])\d{1,3}(?:[,_]\d{3})+(?![\w.,]*\d)|(?<![\w.])\d{1,15}(?![\w]|[.,:/-]\d)%?")
_OF = late(r"[(\[]?(?<![\w./])\d{1,6}\s?(?:/|of)\s?\d{1,6}(?![\w./]\d)[)\]]?")
_COUNTED = (
    r"tokens?|count|counter|turns?|steps?|iterations?|attempts?|messages?|requests?|usage|used|remaining|left|budget"
    r"|round|progress|calls?|context|index|total|seq|sequence|number|nr|no\.|uptime|elapsed"
)
_COUNT_LABEL = late(rf"\b(?:{_COUNTED})\b", re.I)
_COUNT_WORD_BEFORE = late(r"\b(?:turn|step|iteration|attempt|message|request|round|call)\s+(?:no\.?\s*|#)?\Z", re.I)
_CLOCK_WORD_BEFORE = late(r"\b(?:hour|minute|second|weekday|day|week|month|year)(?: is|:|=)?\s?\Z", re.I)
_COUNT_WORD_AFTER = late(r"\s(?:tokens?|turns?|messages?|steps?|requests?|calls?)\s(?:so far|used|left|remaining)\b")
_SHRINKS = late(r"remaining|left|budget", re.I)

_MEASURED = late(
    r"(?<![\w.,-])[-+]?\d{1,6}(?:[.,]\d{1,3})?"
    r"(?=\s?[%°]|\s?(?:degrees?|percent|km/h|mph|m/s|hPa|mbar|lux|ppm|k?Wh?|[KMG]i?B|ms|dB|V|A|mm|cm|km|kg|l)(?![\w/]))"
)
"""A number followed by a unit, as in sensor states of a house, a car or a machine."""
_DECIMAL = late(r"(?<![\w.,-])[-+]?\d{1,6}[.,]\d{1,9}(?!\w|[.,:/-]\d)")
"""A number such as a coordinate, a rate, a level: a value if it has a name."""
_HEAD = ("system", "instructions", "messages[0]", "input[0]", "tools")
"""Paths of text that a program writes before the conversation."""

_PATH = late(r"(?<![\w:/<.~\\])(?:[A-Za-z]:[\\/]|~[\\/]|\.{0,2}/|file:///|\\\\)[^\s\"'`<>|*?;,()\[\]{}]{0,300}")
_CWD_LABEL = late(
    r"\b(?:cwd|pwd|working director(?:y|ies)|work ?dir(?:ectory)?|current directory|root|workspace)\b", re.I
)

_BRANCH = late(
    r"(?:\bon branch\s+|\bHEAD detached at\s+|\b(?:branch|HEAD)\b[^:=\n]{0,60}[\"'`]?\s*[:=]\s*[\"'`]?)[\w./@-]*\Z",
    re.I,
)
_COMMIT = late(r"(?:\b(?:commit|sha|revision|HEAD(?: is now)?(?: at)?)\b[^\w\n]{0,4}|^)[0-9a-f]{0,40}\Z", re.I)
_HASH = late(r"(?<![0-9A-Za-z])[0-9a-f]{7,40}(?![0-9A-Za-z])")
_GIT = late(r"git ?status|Recent commits|Changes (?:not staged|to be committed)|Untracked files|\bgit log\b", re.I)
_STATUS_LINE = late(
    r"(?:[ MADRCUT?!]{2} |[MADRCU?] )\S|\s*(?:modified|new file|deleted|renamed|both modified):\s"
    r"|\(clean\)|nothing to commit"
)
_COMMIT_LINE = late(r"[*\s]{0,3}[0-9a-f]{7,40} \S")
_LOOK = 4000
"""Code points at the start of a text that suffice to recognise a chat template."""
_GIT_REACH = 3000
"""Code points between the headline of a git block and a line of it."""


def uuid(d: FirstDifference) -> Recognition | None:
    """A UUID."""
    found = covering(d, UUID)
    if found is None:
        return None
    a, b = (m.group() for m in found)
    return Recognition("uuid", a, b, "a UUID changed", label(d, value_start(d, a, b)))


def random_id(d: FirstDifference) -> Recognition | None:
    """An id that is new every time: with a known prefix, hexadecimal, of mixed letters and digits, or named as one."""
    for pattern, is_id in ((PREFIXED, _always), (_HEX, _mixed), (_BASE62, _scrambled)):
        found = covering(d, pattern)
        if found and all(is_id(m.group()) for m in found):
            a, b = (m.group() for m in found)
            return _random(a, b, label(d, value_start(d, a, b)))
    found = covering(d, _TOKEN)
    if found is None:
        return None
    a, b = (m.group() for m in found)
    name = label(d, value_start(d, a, b))
    named = name is not None and _ID_LABEL.search(name)
    return _random(a, b, name) if named and any(c.isdigit() for c in a + b) else None


def counter(d: FirstDifference) -> Recognition | None:
    """A number that something counts up (or down, if it shows what is left)."""
    found = covering(d, _OF)
    if found:
        a, b = (m.group() for m in found)
        if _grew(a, b) or (a.strip("([")[:1].isdigit() and a[-1] in ")]"):
            return Recognition("counter", a, b, "a counter changed", label(d, value_start(d, a, b)))
    found = covering(d, _INTEGER)
    if found is None:
        return None
    a, b = (m.group() for m in found)
    start = value_start(d, a, b)
    name, before = label(d, start), d.a.text[max(d.line_start, start - 40) : start]
    after = d.a.text[start + len(a) : start + len(a) + 40]
    if _CLOCK_WORD_BEFORE.search(before):
        return Recognition("timestamp", a, b, "a time changed", "time")
    counted = name is not None and _COUNT_LABEL.search(name)
    if not (counted or _COUNT_WORD_BEFORE.search(before) or _COUNT_WORD_AFTER.match(after)):
        return None
    if not _grew(a, b) and not _SHRINKS.search(f"{name} {after}"):
        return None
    return Recognition("counter", a, b, f"a counter changed from {a} to {b}", name)


def measured(d: FirstDifference) -> Recognition | None:
    """What a program measures and writes before the conversation: a temperature, a charge, a place."""
    if not d.places or not all(place.startswith(_HEAD) for place in d.places):
        return None
    for pattern in (_MEASURED, _DECIMAL):
        found = covering(d, pattern)
        if found is None:
            continue
        a, b = (m.group() for m in found)
        name = label(d, value_start(d, a, b))
        if name is not None or pattern is _MEASURED:
            return Recognition("counter", a, b, f"a value changed from {a} to {b}", name)
    return None


def path(d: FirstDifference) -> Recognition | None:
    """The path of a file or a folder."""
    found = covering(d, _PATH)
    if found is None:
        return None
    a, b = (m.group().rstrip(".:") for m in found)
    name = label(d, value_start(d, a, b))
    at_home = _CWD_LABEL.search(name or "")
    if not at_home and any(len(re.findall(r"[\\/]", value)) < 2 for value in (a, b)):
        return None
    field = "cwd" if at_home else name
    return Recognition("path", a, b, "the working directory differs" if at_home else "a path differs", field)


def git_state(d: FirstDifference) -> Recognition | None:
    """The branch, a commit, or the status of a git repository."""
    if _BRANCH.search(d.before):
        a, b = (_last_word(d, side) for side in "ab")
        return Recognition("git-state", a, b, "the git branch differs", "branch")
    found = covering(d, _HASH)
    if found and _COMMIT.search(d.before) and ("commit" in d.before.lower() or _in_git_block(d)):
        a, b = (m.group() for m in found)
        return Recognition("git-state", a, b, "the git commit differs", "commit")
    lines = [d.line(side) for side in "ab"]
    for pattern, field in ((_STATUS_LINE, "status"), (_COMMIT_LINE, "commit")):
        if any(pattern.match(line) for line in lines) and _in_git_block(d):
            return Recognition("git-state", lines[0], lines[1], f"the git {field} differs", field)
    return None


VALUES = (git_state, timestamp, uuid, random_id, counter, measured, path)
"""Most specific first: a commit hash is also a random id, a date also a counter."""


def value(d: FirstDifference) -> Recognition | None:
    """A value of a known kind that is the whole difference: the text after it continues unchanged."""
    for recogniser in VALUES:
        found = recogniser(d)
        if found and (found.kind == "git-state" or goes_on_alike(d, found.a, found.b)):
            return found
    return None


def value_and_more(d: FirstDifference) -> Recognition | None:
    """A value of a known kind, with different text after it: named ones, and those outside the messages of a chat."""
    for recogniser in VALUES:
        found = recogniser(d)
        if found is None:
            continue
        start = value_start(d, found.a, found.b)
        if label(d, start) or re.search(r"\b(?:date|time|today|now)\b", d.before, re.I):
            found.sure = goes_on_alike(d, found.a, found.b, 1)
            return found
        if not any(place.startswith(("messages", "input")) for place in d.places) and _is_bare(d):
            found.sure = False
            return found
    return None


def _is_bare(d: FirstDifference) -> bool:
    """Whether no marker of a chat template is near the offset: then it is text of no known structure."""
    return not any("<|" in p.text[:_LOOK] or "<start_of_turn>" in p.text[:_LOOK] for p in (d.a, d.b))


def _random(a: str, b: str, name: str | None) -> Recognition:
    return Recognition("random-id", a, b, "an id that is new every time changed", name)


def _always(_text: str) -> bool:
    return True


def _mixed(text: str) -> bool:
    # Words such as "decade" and plain numbers are hexadecimal too.
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text.removeprefix("0x"))


def _scrambled(text: str) -> bool:
    digits = sum(c.isdigit() for c in text)
    changes = sum(_class(x) != _class(y) for x, y in pairwise(text))
    return (
        digits >= 2 and changes >= len(text) // 3 and any(c.islower() for c in text) and any(c.isupper() for c in text)
    )


def _class(char: str) -> int:
    return 0 if char.isdigit() else 1 if char.isupper() else 2


def _grew(a: str, b: str) -> bool:
    first, second = (re.findall(r"\d+", text.replace(",", "").replace("_", "")) for text in (a, b))
    return bool(first and second) and [int(n) for n in first] < [int(n) for n in second]


def _last_word(d: FirstDifference, side: str) -> str:
    before = re.search(r"[\w./@-]*\Z", d.before)
    after = re.match(r"[\w./@-]*", d.rest(side))
    return (before.group() if before else "") + (after.group() if after else "")


def _in_git_block(d: FirstDifference) -> bool:
    return _GIT.search(d.a.text, max(0, d.offset - _GIT_REACH), d.offset) is not None
