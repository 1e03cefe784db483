"""llama-cpp-python with ``verbose``: one line for each prompt that begins like the previous one.

Source: ``Llama.generate`` of llama_cpp/llama.py; the numbers are there from 0.2.88 on (August 2024, its PR 1659).
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("hit", "llama_cpp_python", 0, 0, "O0", "Llama.generate: {reused:count} prefix-match hit, remaining {computed:count} prompt tokens to eval",
      "Llama.generate: 512 prefix-match hit, remaining 8 prompt tokens to eval"),
    R("hit", "llama_cpp_python", 0, 0, "O0", "Llama.generate: prefix-match hit",
      "Llama.generate: prefix-match hit"),
    R("computed", "llama_cpp_python", 0, 0, "O0", "llama_perf_context_print: prompt eval time = {prompt_ms:ms} ms / {computed:count} tokens {more:rest}",
      "llama_perf_context_print: prompt eval time =     431.44 ms /    24 tokens (   17.98 ms per token,    55.63 tokens per second)"),
    R("computed", "llama_cpp_python", 0, 0, "O0", "llama_print_timings: prompt eval time = {prompt_ms:ms} ms / {computed:count} tokens {more:rest}",
      "llama_print_timings: prompt eval time =  1040.04 ms /   234 tokens (    4.44 ms per token,   224.99 tokens per second)"),
]  # fmt: skip

PREFIX = rb"[ \t]{1,16}+"


class Tracker(JudgedTracker):
    """Processes the events of one origin. A prompt that reuses nothing has no line of its own, only its timings."""

    engine = "llama-cpp-python"
    program = "llama-cpp-python"

    _held = 0
    """Tokens of the last prompt: it holds these and the reply, whose length the log does not show."""
    _hit = False
    """The timings that come next are of a request that is counted."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        fields = event.fields
        if event.message == "hit":
            self._hit = True
            reused = fields.get("reused")
            self._judge(event, None if reused is None else reused + fields["computed"], reused)
            return
        if not self._hit and self.session is not None:
            self._judge(event, fields["computed"], 0)
        self._hit = False

    def _judge(self, event: Event, prompt: int | None, reused: int | None) -> None:
        told = self.answered(event.line, prompt, reused, reused if self._held else None)
        self.weigh(event, told)
        self.compare(event, told, self._held)
        self._held = prompt or 0


PROGRAM = Program(Tracker, Literals(b"Llama.generate: "), ROWS, PREFIX)
