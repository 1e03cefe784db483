"""mlx_lm.server: one line when a request begins, which shows nothing about its prompt.

Source: ``mlx_lm/server.py`` of ml-explore/mlx-lm 0.32.0 (commit d78bf58e). ``Prompt processing progress`` counts computed
tokens, and only the response has the length of the prompt (``usage``).
"""

from __future__ import annotations

from cachedoctor.engines.answering import LOGGING, AnswerTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("request", "mlx_lm", 0, 0, "I0", "Prompt Cache: {entries:count} sequences, {size_gb:f} GB",
      "2026-08-22 17:01:12,003 - INFO - Prompt Cache: 4 sequences, 3.21 GB"),
]  # fmt: skip


class Tracker(AnswerTracker):
    """Processes the events of one origin. The line counts a request, whose numbers stay unknown."""

    engine = "mlx-lm"
    program = "mlx_lm.server"

    def read(self, event: Event) -> None:
        """Take the next event."""
        self.answered(event.line, None, None)


PROGRAM = Program(Tracker, Literals(b"Prompt Cache: "), ROWS, LOGGING)
