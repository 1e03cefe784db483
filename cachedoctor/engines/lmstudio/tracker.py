"""Turns events of LM Studio's MLX engine into sessions with answers. Knows its line; knows no rule."""

from __future__ import annotations

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event


class Tracker(AnswerTracker):
    """Feeds on the events of one origin. Each line is a whole request, written before its prompt is computed."""

    engine = "lmstudio-mlx"

    def read(self, event: Event) -> None:
        """Take the next event.

        The two numbers leave the last token of the prompt out, which is always computed, with the reply: with it they
        are the ``usage.prompt_tokens`` of the response.
        """
        cached = event.fields["cached"]
        self.answered(event.line, cached + event.fields["left"] + 1, cached)
