"""KoboldCpp: one line after each reply, with the size of the context and how much of it was computed.

Source: ``gpttype_adapter.cpp`` and ``koboldcpp.py`` of KoboldCpp, and its issue 2335 for the note on a window. A version counts as its second number (1.120 is 120), 0
where it is not known.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("start", "koboldcpp", 0, 120, "O0", "Welcome to KoboldCpp - Version {version:word}",
      "Welcome to KoboldCpp - Version 1.120"),
    # the second number is what is computed of the prompt, not the prompt; on a terminal overwritten again and again
    R("progress", "koboldcpp", 0, 120, "I0", "Processing Prompt ({done:count} / {computed:count} tokens)",
      "Processing Prompt (1 / 1 tokens)"),
    R("progress", "koboldcpp", 0, 93, "I0", "Processing Prompt [BLAS] ({done:count} / {computed:count} tokens)",
      "Processing Prompt [BLAS] (1008 / 1008 tokens)"),
    R("progress", "koboldcpp", 0, 120, "I0", "Processing Prompt [BATCH] ({done:count} / {computed:count} tokens)",
      "Processing Prompt [BATCH] (190 / 190 tokens)"),
    # before a prompt is computed: what it has in common with the context is further back than the window of some layers
    R("window", "koboldcpp", 0, 120, "I0", "Note: SWA context cannot be reused (Desired n_past={matched:count}, SWA lowest n_past={lowest:count}), {advice:rest}",
      "Note: SWA context cannot be reused (Desired n_past=940, SWA lowest n_past=943), to avoid this, disable SWA or increase SWA padding), output may degrade."),
    R("done", "koboldcpp", 0, 0, "O0", "CtxLimit:{context:count}/{limit:count}, Amt:{generated:d}/{most:d}, Init:{init_s:f}s, Process:{prompt_s:f}s ({prompt_rate:rate}T/s), Generate:{reply_s:f}s ({reply_rate:rate}T/s), Total:{total_s:f}s",
      "[19:46:37] CtxLimit:2500/4096, Amt:5/470, Init:0.00s, Process:1.24s (2020.24T/s), Generate:0.18s (27.17T/s), Total:1.42s"),
    R("done", "koboldcpp", 0, 93, "O0", "CtxLimit:{context:count}/{limit:count}, Amt:{generated:d}/{most:d}, Init:{init_s:f}s, Process:{prompt_s:f}s ({prompt_ms:ms}ms/T = {prompt_rate:rate}T/s), Generate:{reply_s:f}s ({reply_ms:f}ms/T = {reply_rate:rate}T/s), Total:{total_s:f}s ({total_rate:rate}T/s)",
      "CtxLimit:1082/4096, Amt:74/400, Init:0.01s, Process:2.37s (2.4ms/T = 425.14T/s), Generate:2.07s (28.0ms/T = 35.77T/s), Total:4.44s (16.67T/s)"),
    R("done", "koboldcpp", 0, 120, "O0", "CtxLimit:{context:count}/{limit:count}, Init:{init_s:f}s, Processed:{computed:count} in {prompt_s:f}s ({prompt_rate:rate}T/s), Generated:{generated:d}/{most:d} in {reply_s:f}s ({reply_rate:rate}T/s), Total:{total_s:f}s",
      "[21:04:11] CtxLimit:161461/292144, Init:0.41s, Processed:161383 in 3419.68s (47.19T/s), Generated:78/300 in 9.12s (8.55T/s), Total:3429.21s"),
]  # fmt: skip

PREFIX = rb"(?:\r++|\[\d\d:\d\d:\d\d\] )"
"""A progress display begins with a carriage return; the line after a reply has a clock in newer versions."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. KoboldCpp answers one request at a time."""

    engine = "koboldcpp"
    program = "KoboldCpp"

    _computed: int | None = None
    """Tokens of the prompt that are being computed."""
    _held: int | None = None
    """Tokens of its context after the last reply."""

    _window: Event | None = None
    """The line that shows that the context could not be used where the prompt diverges from it."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        if event.message == "start":
            self._computed = self._held = self._window = None
            self.starts(event.line)
            self.is_of(event.fields["version"])
        elif event.message == "progress":
            self._computed = event.fields["computed"]
        elif event.message == "window":
            self._window = event
            self.lookup(event, None, event.fields["matched"], event.fields["lowest"])
        else:
            self._done(event)

    def _done(self, event: Event) -> None:
        """Take a reply that ended. The context then holds the prompt and what was generated.

        Nothing is generated where the client gave up while the prompt was computed: the context then holds part of it.
        """
        computed, self._computed = event.fields.get("computed", self._computed), None
        generated = event.fields["generated"]
        held, self._held = self._held, None
        window, self._window = self._window, None
        if generated <= 0:
            self.answered(event.line, None, None)
            return
        self._held, prompt = event.fields["context"], event.fields["context"] - generated
        cached = None if computed is None else prompt - computed
        matched = cached if held is not None else None
        if window is not None and cached is not None:
            matched, held = max(cached, window.fields["matched"]), held or window.fields["lowest"]
        told = self.answered(event.line, prompt, cached, matched)
        self.weigh(event, told)
        if held is not None:
            self.compare(window or event, told, held)


PROGRAM = Program(
    Tracker,
    Literals(b"CtxLimit:", b"Processing Prompt", b"Welcome to KoboldCpp", b"Note: SWA context cannot be reused"),
    ROWS,
    PREFIX,
)
