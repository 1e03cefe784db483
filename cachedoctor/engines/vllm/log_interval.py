"""How long the time is that a statistics line speaks of, and how many tokens its rates are.

vLLM prints rates every ``VLLM_LOG_STATS_INTERVAL`` seconds (default 10; 5 in 0.7 and in the V0 engine). While idle it
prints one line of zeros and then none: the time since the line before is the interval where that line tells of work,
and may be longer elsewhere. The first interval begins when the engine is ready.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cachedoctor.engines.vllm.prefix import seconds

_DEFAULT = 10.0
_EARLY = 5.0
"""Seconds, up to 0.7 and in the V0 engine."""
_REMEMBERED = 32
_LONGEST = 120.0
"""Seconds; a longer gap is that of a log without its lines of zeros."""
_SECOND = 1.0
"""Times have whole seconds: an interval of 10 s is printed as 9, 10 or 11."""
_AGREE = 2
"""Gaps that make an interval longer than the default believed: one may lack the lines between."""


class _Line(NamedTuple):
    time: int
    """As ``Prefix.time``."""
    busy: bool


Writer = tuple[str | None, str | None]
"""Process and label of the engine: each of several API servers prints lines of every engine, at its own times."""


class Intervals:
    """Learns the interval of one server from the times of its lines."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)
        self._last: dict[Writer, _Line] = {}
        self._ready: int | None = None
        self._commonest: tuple[float, int] | None = None
        """Mean of the commonest short gaps, and how many these are; None where it is not known any more."""

    def ready(self, time: int | None) -> None:
        """The engine was made ready; statistics are counted from then on."""
        if time is not None and not self._last:
            self._ready = time

    def fresh(self, writer: Writer) -> bool:
        """Whether no line of this writer came yet."""
        return writer not in self._last

    def of(self, writer: Writer, time: int | None, busy: bool, early: bool) -> float | None:
        """Seconds that the next line of a writer is over; None when the log cannot tell.

        Args:
            writer: who prints it.
            time: of the line, to the second.
            busy: the line tells of work.
            early: the version is 0.7 or older, or the engine V0, which print while idle as well.
        """
        default = _EARLY if early else _DEFAULT
        if time is None:
            return default
        before = self._last.get(writer)
        self._last[writer] = _Line(time, busy)
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
        """The interval as far as it is known by now: the commonest short gap behind a line that tells of work."""
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
        """The interval where it is not the default; None where that is not known."""
        usual = self.usual(early)
        return None if usual == (_EARLY if early else _DEFAULT) else usual

    def _first(self, time: int, usual: float) -> float:
        """The first line may come one interval after the engine was ready, with what the start took on top."""
        if self._ready is None:
            return usual
        since = seconds(self._ready, time)
        return since if usual <= since < 2 * usual else usual
