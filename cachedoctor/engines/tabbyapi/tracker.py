"""Turns events of a TabbyAPI log into sessions with answers. Knows its line; knows no rule."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event
from cachedoctor.model import CacheSample, PrefillBatch, Session


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
        self._broken: Event | None = None
        """First part of a line of which the numbers are still to come."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        begun, self._broken = self._broken, None
        if event.message == "rest":
            if begun is not None:
                self._metrics(event)
            return
        if begun is not None:  # broken in a place where the numbers cannot be read
            self.answered(begun, None, None)
        if event.message == "begin":
            self._broken = event
        else:
            self._metrics(event)

    def _metrics(self, event: Event) -> None:
        cached = event.fields["cached"]
        self.answered(event, cached + event.fields["new"], cached)
