"""LM Studio's MLX engine. Lines of its llama.cpp engine are those of llama-server and are read as such.

Source: mlx-engine (lmstudio-ai/mlx-engine), as shipped with LM Studio 0.4.5 to 0.4.21.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("restore", "lmstudio", 0, 0, "D0", "Prompt cache restore: cached_tokens={cached:count} uncached_tokens={left:d} lifetime_efficiency={lifetime:f}%",
      "[coordinator][INFO]: Prompt cache restore: cached_tokens=256 uncached_tokens=101 lifetime_efficiency=66.83%"),
    # in a post that is cut, or broken into rows, before the share
    R("restore", "lmstudio", 0, 0, "D0", "Prompt cache restore: cached_tokens={cached:count} uncached_tokens={left:d}",
      "[coordinator][INFO]: Prompt cache restore: cached_tokens=256 uncached_tokens=101"),
]  # fmt: skip

PREFIX = rb"[ \t]{0,16}+(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?+(?:\[[^\]\n]{1,200}+\]:? ?){0,6}+"
"""``[coordinator][INFO]: ``, after LM Studio's own date, level and model where these are on the same line."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. Each line is a whole request, written before its prompt is computed."""

    engine = "lmstudio-mlx"
    program = "LM Studio (MLX)"

    def read(self, event: Event) -> None:
        """Process the next event.

        The two numbers leave out the last token of the prompt, which is always computed. With it they add up to
        ``usage.prompt_tokens`` of the response.
        """
        cached = event.fields["cached"]
        self.weigh(event, self.answered(event.line, cached + event.fields["left"] + 1, cached))


PROGRAM = Program(Tracker, Literals(b"Prompt cache restore: cached_tokens="), ROWS, PREFIX)
