"""Turns events of ollama's own runners into sessions with answers. Knows their lines; knows no rule."""

from __future__ import annotations

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event


class Tracker(AnswerTracker):
    """Feeds on the events of one origin. Each line is a whole request, written before its prompt is computed."""

    engine = "ollama"

    def read(self, event: Event) -> None:
        """Take the next event."""
        if event.message == "start":
            self.starts(event.line)
        elif event.message == "listening":
            self.is_of(event.fields["version"])
        else:  # a miss prints no number for what is reused: all is left
            self.answered(event.line, event.fields["prompt"], event.fields.get("cached", 0))
