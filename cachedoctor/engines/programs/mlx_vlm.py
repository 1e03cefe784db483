"""mlx-vlm: prompt and cached tokens of each prefill, with its time.

Source: ``mlx_vlm/server/generation.py`` of Blaizzy/mlx-vlm 0.6.15 (commit 9b13f522). With a draft model the line always has
``cached_tokens=0`` (its issue 1957). A prefill that is much too fast for this number contradicts it.
"""

from __future__ import annotations

from collections import deque

from cachedoctor.engines.answering import LOGGING, JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("prefill", "mlx_vlm", 0, 0, "I0", "Prefill completed: request={id:word} prompt_tokens={prompt:count} cached_tokens={cached:count} elapsed={prompt_s:f}s rate={rate:rate} tok/s",
      "2026-08-27 11:54:27,120 - INFO - Prefill completed: request=6c9587c50 prompt_tokens=15250 cached_tokens=0 elapsed=74.200s rate=205.5 tok/s"),
]  # fmt: skip

_LONG = 512
"""Tokens of a prompt: for shorter ones, most of the time is start-up."""
_ALIKE = 4
"""Prompts are comparable if the longer has at most this many times the tokens."""
_FASTER = 8
"""No machine computes one prompt this many times faster than another of that length."""
_KEPT = 64
"""Prefills that others are compared with."""


class Tracker(JudgedTracker):
    """Processes the events of one origin."""

    engine = "mlx-vlm"
    program = "mlx-vlm"

    def prepare(self) -> None:
        """Create the state that is kept between lines."""
        self._whole: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        """Tokens and seconds of long prompts of which nothing seems to have been reused."""
        self._lies = False
        """A counter was contradicted: from then on its zeros prove nothing."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        prompt, cached, seconds = (event.fields[name] for name in ("prompt", "cached", "prompt_s"))
        slower = self._slower(prompt, seconds) if cached == 0 else None
        if slower is not None:
            self._lies = True
        told = self.answered(event.line, prompt, None if cached == 0 and self._lies else cached)
        self.weigh(event, told)
        if slower is not None:
            numbers = {"seconds": seconds, "prompt": prompt, "slow_tokens": slower[0], "slow_seconds": slower[1]}
            self.state("counter_wrong", event, prompt, **numbers)
        elif cached == 0 and prompt >= _LONG and seconds is not None and seconds > 0:
            self._whole.append((prompt, seconds))

    def _slower(self, prompt: int, seconds: float | None) -> tuple[int, float] | None:
        """Return a prefill of a prompt of this size that was many times slower."""
        if prompt < _LONG or seconds is None or seconds <= 0:
            return None
        rate = prompt / seconds
        for tokens, took in self._whole:
            if max(tokens, prompt) <= _ALIKE * min(tokens, prompt) and rate >= _FASTER * tokens / took:
                return tokens, took
        return None


PROGRAM = Program(Tracker, Literals(b"Prefill completed: request="), ROWS, LOGGING)
