"""ollama: the lines of its own runners about each request. Lines of the llama-server that it starts are read as such.

Sources: ``runner/llamarunner/cache.go``, ``runner/ollamarunner/cache.go`` and ``x/mlxrunner/cache.go`` of ollama, and
logs of its issues. A version counts as ``minor * 100 + patch`` (0.33.3 is 3303), 0 if it is not known.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals
from cachedoctor.model import Setting

_GAP = 512
"""Tokens by which what was restored must be shorter than the match for its line to be kept."""

ROWS: list[R] = [
    # Its environment, which may hold credentials of a proxy, is not read.
    R("start", "ollama", 0, 3303, "I0", 'msg="server config"',
      'time=2026-08-19T19:34:53.590+02:00 level=INFO source=routes.go:1933 msg="server config"'),
    R("listening", "ollama", 0, 3303, "I0", 'msg="Listening on {address:host} (version {version:word})"',
      'time=2026-08-19T19:34:53.601+02:00 level=INFO source=routes.go:1984 msg="Listening on 127.0.0.1:11434 (version 0.33.3)"'),
    # the Go runners: tokens, or embeddings of an image, that the slot held, of the prompt, kept and left to compute
    R("slot", "ollama", 400, 3303, "D400", 'msg="loading cache slot" id={slot:count} cache={held:count} prompt={prompt:count} used={cached:count} remaining={left:d}',
      'time=2026-02-03T21:14:05.118Z level=DEBUG source=cache.go:151 msg="loading cache slot" id=0 cache=5120 prompt=5213 used=5104 remaining=109'),
    # the MLX runner: first a cache by prompt, later one sequence, then a trie with snapshots. left is wrong in an exact hit.
    R("hit", "ollama", 0, 0, "I0", 'msg="Cache hit" type={type:word} total={prompt:count} cached={cached:count} left={left:d}',
      'time=2026-02-11T09:12:44.310-08:00 level=INFO source=cache.go:52 msg="Cache hit" type=partial total=1210 cached=1180 left=30'),
    R("hit", "ollama", 0, 0, "I0", 'msg="Cache hit" type={type:word} total={prompt:count} cached={cached:count} left={left:d} trimmed={trimmed:d}',
      'time=2026-02-11T09:12:44.310-08:00 level=INFO source=cache.go:82 msg="Cache hit" type=prefix total=1210 cached=640 left=570 trimmed=12'),
    R("hit", "ollama", 0, 0, "I0", 'msg="Cache hit" total={prompt:count} cached={cached:count} left={left:d}',
      'time=2026-03-05T16:01:09.554-08:00 level=INFO source=cache.go:141 msg="Cache hit" total=8301 cached=8117 left=184'),
    R("miss", "ollama", 0, 0, "I0", 'msg="Cache miss" left={prompt:count}',
      'time=2026-03-05T16:00:58.120-08:00 level=INFO source=cache.go:139 msg="Cache miss" left=8090'),
    R("miss", "ollama", 0, 0, "I0", 'msg="Cache miss" left={prompt:count} matched={matched:count} reason={reason:word}',
      'time=2026-03-05T16:02:31.908-08:00 level=INFO source=cache.go:133 msg="Cache miss" left=8402 matched=7990 reason=non_trimmable_divergence'),
    R("hit", "ollama", 0, 3303, "I0", 'msg="cache hit" total={prompt:count} matched={matched:count} cached={cached:count} left={left:d}',
      'time=2026-09-05T11:42:10.771+02:00 level=INFO source=prefix_cache.go:125 msg="cache hit" total=23169 matched=21742 cached=16383 left=6786'),
    R("hit", "ollama", 0, 3303, "I0", 'msg="cache miss" total={prompt:count} matched={matched:count} cached={cached:count} left={left:d}',
      'time=2026-09-05T11:40:02.065+02:00 level=INFO source=prefix_cache.go:125 msg="cache miss" total=21743 matched=0 cached=0 left=21743'),
]  # fmt: skip

PREFIX = rb"time=\S++ level=[A-Z]++ (?:source=\S++ )?+"
"""Go's slog."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. Each line is a whole request, written before its prompt is computed."""

    engine = "ollama"
    program = "ollama"

    def read(self, event: Event) -> None:
        """Take the next event."""
        if event.message == "start":
            self.starts(event.line)
        elif event.message == "listening":
            self.is_of(event.fields["version"])
        else:  # a miss prints no number for what is reused: all is left
            cached, matched, held = event.fields.get("cached", 0), event.fields.get("matched"), event.fields.get("held")
            told = self.answered(event.line, event.fields["prompt"], cached, cached if held else matched)
            self.weigh(event, told)
            if held:  # what the slot held; of it what is common is reused
                self.compare(event, told, held)
            elif matched is not None:
                self.compare(event, told, matched)
            if self.session is not None and matched is not None and matched - cached >= _GAP:
                self.session.settings.setdefault("restore_cut", Setting(matched - cached, event.line, event.text))


PROGRAM = Program(Tracker, Literals(b' msg="'), ROWS, PREFIX)
