"""How long the time is that a statistics line speaks of, and how many tokens its rates are.

vLLM prints rates every ``VLLM_LOG_STATS_INTERVAL`` seconds (default 10; 5 in 0.7 and in the V0 engine), and nothing
while idle: the time between two printed lines may be much longer than the interval. The first interval begins when the
engine is ready. Knows times and versions. Knows no line.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from cachedoctor.engines.vllm.prefix import seconds

_DEFAULT = 10.0
_EARLY = 5.0
"""Seconds, up to 0.7 and in the V0 engine."""
_REMEMBERED = 32
_LONGEST = 600.0
"""Seconds; nobody waits longer for a line of a busy engine."""


Writer = tuple[str | None, str | None]
"""Process and label of the engine: each of several API servers prints lines of every engine, at its own times."""


class Intervals:
    """Learns the interval of one server from the times of its lines."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)
        self._last: dict[Writer, datetime] = {}
        self._ready: datetime | None = None

    def ready(self, time: datetime | None) -> None:
        """The engine was made ready; statistics are counted from then on."""
        if time is not None and not self._last:
            self._ready = time

    def fresh(self, writer: Writer) -> bool:
        """Whether no line of this writer came yet."""
        return writer not in self._last

    def of(self, writer: Writer, time: datetime | None, early: bool) -> float | None:
        """Seconds that the next line of a writer is over; None when the log cannot tell.

        Args:
            writer: who prints it.
            time: of the line, to the second.
            early: the version is 0.7 or older, or the engine V0.
        """
        default = _EARLY if early else _DEFAULT
        if time is None:
            return default
        before = self._last.get(writer)
        self._last[writer] = time
        if before is None:
            return self._first(time, default)
        gap = seconds(before, time)
        if 0 < gap <= _LONGEST:
            self._gaps.append(gap)
        return self._usual(default)

    def _usual(self, default: float) -> float:
        """The commonest short gap: times have whole seconds, so that one of 10 s is printed as 9, 10 or 11."""
        least = min(self._gaps, default=default)
        if abs(least - default) <= 1.0 or least > default:
            return default  # longer gaps are those of an idle engine
        near = [gap for gap in self._gaps if gap <= least + 1.0]
        return sum(near) / len(near)

    def _first(self, time: datetime, default: float) -> float:
        """The first line may come one interval after the engine was ready, with what the start took on top."""
        if self._ready is None:
            return default
        since = seconds(self._ready, time)
        return since if default <= since < 2 * default else default
