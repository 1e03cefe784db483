"""Turns events of a KoboldCpp log into sessions with answers. Knows its lines; knows no rule."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event
from cachedoctor.model import CacheSample, PrefillBatch, Session


class Tracker(AnswerTracker):
    """Feeds on the events of one origin. KoboldCpp answers one request at a time."""

    engine = "koboldcpp"

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        super().__init__(path, origin, new_session, keep)
        self._computed: int | None = None
        """Tokens of the prompt that are being computed."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        if event.message == "start":
            self._computed = None
            self.starts(event.line)
            self.is_of(event.fields["version"])
        elif event.message == "progress":
            self._computed = event.fields["computed"]
        else:
            self._done(event)

    def _done(self, event: Event) -> None:
        """Take a reply that ended. The context then holds the prompt and what was generated.

        Nothing is generated where the client gave up while the prompt was computed: the context then holds part of it.
        """
        computed, self._computed = event.fields.get("computed", self._computed), None
        generated = event.fields["generated"]
        if generated <= 0:
            self.answered(event.line, None, None)
            return
        prompt = event.fields["context"] - generated
        self.answered(event.line, prompt, None if computed is None else prompt - computed)
