"""Turns events of an SGLang log into sessions, periods and batches. Knows SGLang's lines; knows no rule."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.base import Event
from cachedoctor.model import CacheSample, PrefillBatch, Session


class Tracker:
    """Feeds on the events of one origin."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        self._path = path
        self._origin = origin
        self._new_session = new_session
        self._keep = keep
        self.session: Session | None = None

    def feed(self, event: Event) -> None:
        """Take the next event."""

    def continue_in(self, path: str) -> None:
        """The log goes on in another file."""
        self._path = path
