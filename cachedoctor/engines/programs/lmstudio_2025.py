"""The llama.cpp engine that LM Studio embedded in 2025; newer versions print the lines of llama-server.

Source: a developer log of LM Studio 0.3.18 (its bug tracker, issue 778).
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("summary", "lmstudio", 0, 0, "D0", "Cache reuse summary: {reused:count}/{prompt:count} of prompt ({share:f}%), {prefix:count} prefix, {moved:count} non-prefix",
      "Cache reuse summary: 939/939 of prompt (100%), 939 prefix, 0 non-prefix"),
]  # fmt: skip

PREFIX = rb"(?:\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]?+ ?\[[A-Z]{4,8}\] ?|[ \t]{1,8}+)"


class Tracker(JudgedTracker):
    """Processes the events of one origin. The last token of a prompt is computed even if all of the prompt was kept."""

    engine = "lmstudio"
    program = "LM Studio"

    def read(self, event: Event) -> None:
        """Take the next event."""
        prompt = event.fields["prompt"]
        self.weigh(event, self.answered(event.line, prompt, min(event.fields["reused"], prompt - 1)))


PROGRAM = Program(Tracker, Literals(b"Cache reuse summary: "), ROWS, PREFIX)
