"""TabbyAPI: one line per request, with cached and new tokens.

Source: ``common/gen_logging.py`` and ``common/logger.py`` of TabbyAPI, which has no versions, and its logs of 2026-08 and
2026-09. If its output is not a terminal, rich breaks lines between words at 80 columns.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals
from cachedoctor.knowledge.late_patterns import late

ROWS: list[R] = [
    R("metrics", "tabbyapi", 0, 0, "I0", "Metrics (ID: {id:word}): {generated:d} tokens generated in {seconds:f} seconds (Queue: {queue_s:f} s, Process: {cached:count} cached tokens and {new:count} new tokens at{rates:rest}",
      "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 242 tokens generated in 9.55 seconds (Queue: 0.0 s, Process: 3072 cached tokens and 517 new tokens at 1034.0 T/s, Generate: 26.71 T/s, Context: 3589 tokens)"),
    # the first part of a broken line: unknown text may follow
    R("begin", "tabbyapi", 0, 0, "I0", "Metrics (ID:",
      "2026-09-06 04:04:21.722 INFO:     Metrics (ID:"),
    # a later part: what comes before it is taken for a prefix, the number of cached tokens as well
    R("rest", "tabbyapi", 0, 0, "I0", "cached tokens and {new:count} new tokens at {rates:text}",
      "0.01 s, Process: 0 cached tokens and 5436 new tokens at 474.76 T/s, Generate:"),
    R("rest", "tabbyapi", 0, 0, "I0", "cached tokens and {new:count}",
      "in 1201.55 seconds (Queue: 0.0 s, Process: 130072 cached tokens and 13571"),
]  # fmt: skip

PREFIX = (
    rb"(?:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6}+)?+ )?+(?:[A-Z]{4,8}: ++)?+(?=Metrics \(ID:)"
    rb"|[^\nc]*+(?:c(?!ached tokens and \d)[^\nc]*+)*+(?=cached tokens and \d))"
)
"""``2026-09-06 04:04:21.722 INFO:     ``, only newer versions print the time; or the beginning of a broken line's later
part."""


_CACHED = late(rb"(?<!\d)(\d{1,10}) cached tokens and ")
_PARTS = 3
"""Lines after the first part of a broken line that may have its numbers."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. TabbyAPI does not log its start, so all requests are of one session."""

    engine = "tabbyapi"
    program = "TabbyAPI"

    _broken: int | None = None
    """Number of the line with the first part of a record whose numbers are still to come."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        begun, self._broken = self._broken, None
        if event.message == "rest":
            if begun is not None:
                cached = _CACHED.search(event.text) if event.line <= begun + _PARTS else None
                self._numbers(event, None if cached is None else int(cached[1]))
            return
        if begun is not None:  # broken in a place where the numbers cannot be read
            self.answered(begun, None, None)
        if event.message == "begin":
            self._broken = event.line
        else:
            self._numbers(event, event.fields["cached"])

    def _numbers(self, event: Event, cached: int | None) -> None:
        self.weigh(event, self.answered(event.line, None if cached is None else cached + event.fields["new"], cached))


PROGRAM = Program(Tracker, Literals(b"Metrics (ID:"), ROWS, PREFIX)
