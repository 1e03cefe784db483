"""Turns events of a TabbyAPI log into sessions with answers. Knows its line; knows no rule."""

from __future__ import annotations

import re
from collections.abc import Callable

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event
from cachedoctor.model import CacheSample, PrefillBatch, Session

_CACHED = re.compile(rb"(?<!\d)(\d{1,15}) cached tokens and ")
_PARTS = 3
"""Lines behind the first part of a broken line on which its numbers can stand."""


class Tracker(AnswerTracker):
    """Feeds on the events of one origin. TabbyAPI does not log that it starts: all requests are of one session."""

    engine = "tabbyapi"

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        super().__init__(path, origin, new_session, keep)
        self._broken: int | None = None
        """Where the first part of a line stands of which the numbers are still to come."""

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
        self.answered(event.line, None if cached is None else cached + event.fields["new"], cached)
