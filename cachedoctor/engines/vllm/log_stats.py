"""The statistics line of a vLLM engine: its prefix, its interval, and its values as a sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheSample
from cachedoctor.model.bounds import PERCENT

_PREFIX = late(
    rb"(?:\((?P<process>[\w.-]{1,60})[^()]{0,80}\) )?"
    rb"\[?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,4}(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)"
    rb"(?:[.,]\d{1,6})? \[?(?P<file>[\w./-]{1,200}\.py):(?P<source>\d{1,5})\]"
)
_HEAD = 1 << 13
"""Bytes of a line in which its prefix is searched for; progress bars may be glued before it."""
_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month of a leap year, so that February 29 is valid; vLLM writes no year."""
_BEFORE = (0, *accumulate(_MONTHS))
"""Days before each month."""
_DAY = 86_400
_HALF_YEAR = 183 * _DAY


class LinePrefix(NamedTuple):
    """Parts of a prefix; None if the line has none."""

    process: str | None = None
    """``APIServer``, ``EngineCore_DP0`` ..."""
    time: int | None = None
    """Seconds since the start of a leap year, in the server's time zone."""
    iso: str | None = None
    """``--MM-DDTHH:MM:SS``."""
    file: str | None = None
    """Source file that printed it; at the debug level with its folders."""
    source: int | None = None
    """Number of the line in it."""


def read(line: bytes) -> LinePrefix:
    """Read the prefix of a line without its wrapper."""
    found = _PREFIX.search(line, 0, _HEAD)
    if found is None:
        return LinePrefix()
    process, _, month, day, clock, file, source = found.groups()
    hour, minute, second = clock.split(b":")
    time = _seconds(int(month), int(day), int(hour), int(minute), int(second))
    iso = None if time is None else f"--{month.decode()}-{day.decode()}T{clock.decode()}"
    return LinePrefix(None if process is None else process.decode(), time, iso, file.decode(), int(source))


def _seconds(month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Seconds since the start of the year; None for a date or time that does not exist."""
    if not (1 <= month <= len(_MONTHS) and 1 <= day <= _MONTHS[month - 1] and hour < 24 and minute < 60 > second):
        return None
    return (_BEFORE[month - 1] + day - 1) * _DAY + hour * 3600 + minute * 60 + second


def seconds(earlier: int, later: int) -> float:
    """Seconds between two times without a year, also across New Year."""
    passed = later - earlier
    return float(passed + _BEFORE[-1] * _DAY if passed < -_HALF_YEAR else passed)


_DEFAULT = 10.0
_EARLY = 5.0
"""Seconds, up to 0.7 and in the V0 engine."""
_REMEMBERED = 32
_LONGEST = 120.0
"""Maximum seconds between two lines; a longer gap means that the log lacks its lines of zeros."""
_SECOND = 1.0
"""Times have whole seconds: an interval of 10 s is printed as 9, 10 or 11."""
_AGREE = 2
"""Gaps that must agree before an interval longer than the default is believed: a single gap may lack lines between."""


class _StatsLine(NamedTuple):
    time: int
    """Time as in ``Prefix.time``."""
    busy: bool


Writer = tuple[str | None, str | None]
"""Process and label of the engine: each of several API servers prints lines of every engine, at its own times."""


class Intervals:
    """Learns the interval of one server from the times of its lines."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)
        self._last: dict[Writer, _StatsLine] = {}
        self._ready: int | None = None
        self._commonest: tuple[float, int] | None = None
        """Mean of the commonest short gaps, and how many these are; None if it is not known any more."""

    def ready(self, time: int | None) -> None:
        """Note that the engine is ready; statistics count from now on."""
        if time is not None and not self._last:
            self._ready = time

    def fresh(self, writer: Writer) -> bool:
        """Whether this writer has not printed a line yet."""
        return writer not in self._last

    def of(self, writer: Writer, time: int | None, busy: bool, early: bool) -> float | None:
        """Seconds covered by the next line of a writer; None if the log does not show it.

        Args:
            writer: who prints it.
            time: of the line, to the second.
            busy: the line shows traffic.
            early: the version is 0.7 or older, or the engine V0, which print while idle as well.
        """
        default = _EARLY if early else _DEFAULT
        if time is None:
            return default
        before = self._last.get(writer)
        self._last[writer] = _StatsLine(time, busy)
        if before is None:
            return self._first(time, self.usual(early))
        gap = seconds(before.time, time)
        if not (before.busy or early) or not 0 < gap <= _LONGEST:
            return self.usual(early)
        if len(self._gaps) < _REMEMBERED or self._gaps[0] != gap:  # else one comes as another one goes
            self._commonest = None
        self._gaps.append(gap)
        usual = self.usual(early)
        # A line that came late is about all the time that passed; where far more did, lines of zeros were taken out.
        return gap if usual + _SECOND < gap < 2 * usual else usual

    def usual(self, early: bool) -> float:
        """The interval as far as it is known: the most frequent short gap after a line that shows traffic."""
        default = _EARLY if early else _DEFAULT
        if not self._gaps:
            return default
        if self._commonest is None:
            least = min(self._gaps)
            near = [gap for gap in self._gaps if gap <= least + _SECOND]
            self._commonest = sum(near) / len(near), len(near)
        mean, count = self._commonest
        if mean > default and count < _AGREE:
            return default
        return default if abs(mean - default) <= _SECOND / count else mean

    def learned(self, early: bool) -> float | None:
        """The interval if it differs from the default; None if unknown."""
        usual = self.usual(early)
        return None if usual == (_EARLY if early else _DEFAULT) else usual

    def _first(self, time: int, usual: float) -> float:
        """The first line may come one interval after the engine was ready, with what the start took on top."""
        if self._ready is None:
            return usual
        since = seconds(self._ready, time)
        return since if usual <= since < 2 * usual else usual


_NUMBER = late(r"(\d{1,10}(?:\.\d{1,15})?)(?!\.?\d)")
_SHORT = 16
"""Characters of a share, whose value is remembered."""
_USAGE = " KV cache usage"
_KV = late(r"[A-Z]{2,8}" + _USAGE)
"""``GPU`` up to 0.29 on every device, then the device's own name."""


_HIT_RATE = "Prefix cache hit rate"
_LAST_PAIR = late(rb"(?:(?:usage|rate): \d{1,3}(?:\.\d{1,15})?%|(?<!usage)(?<!rate): \d{1,10}(?: reqs)?)\.?\s*\Z")


def torn(line: bytes, fields: Mapping[str, Any]) -> bool:
    """Whether a line lacks its hit rate because it was truncated: by a window's edge, a pager, or another record."""
    pairs: Mapping[str, str] | None = fields.get("more")
    if pairs is None or _share(pairs.get(_HIT_RATE)) is not None:
        return False
    return _LAST_PAIR.search(line, max(line.rfind(b",") - 1, 0)) is None


def sample(session: int, path: str, line: int, fields: Mapping[str, Any]) -> CacheSample:
    """Return the values of a statistics line."""
    pairs: Mapping[str, str] = fields.get("more", {})
    usage = pairs.get(_usage_in(tuple(pairs)))
    return CacheSample(
        session=session,
        path=path,
        line=line,
        engine=fields.get("engine"),
        prompt_rate=fields["prompt_rate"],
        generation_rate=fields["generation_rate"],
        running=fields["running"],
        waiting=fields.get("waiting", fields.get("pending")),
        deferred=_int(pairs.get("Deferred")),
        kv_usage=_share(usage) if usage is not None else share(fields.get("gpu_usage")),
        hit_rate=_share(pairs.get(_HIT_RATE)),
        external_hit_rate=_share(pairs.get("External prefix cache hit rate")),
        mm_hit_rate=_share(pairs.get("MM cache hit rate")),
        preemptions=_int(pairs.get("Preemptions")),
    )


@lru_cache(maxsize=4)  # a server has a name or two
def _usage_in(names: tuple[str, ...]) -> str:
    """Name of the cache usage field in a line; empty if there is none."""
    return next((name for name in names if name.endswith(_USAGE) and _KV.fullmatch(name)), "")


def _float(text: str | None) -> float | None:
    found = None if text is None else _NUMBER.match(text)
    return None if found is None else float(found[1])


def _int(text: str | None) -> int | None:
    found = _float(text)
    return None if found is None else int(found)


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    return _printed_share(text) if len(text) <= _SHORT else _printed_share.__wrapped__(text)


@lru_cache(maxsize=1024)  # a rate with one digit behind the point has a thousand values
def _printed_share(text: str) -> float | None:
    return share(_float(text)) if "%" in text else None


def share(percent: float | None) -> float | None:
    """Convert a percentage to a share; None if it is above 100."""
    found = PERCENT.of(percent)
    return None if found is None else round(found / 100, 6)
