"""vllm-mlx and Rapid-MLX, which began as the same program: how much of each prompt they find in the cache.

Source: ``vllm_mlx/scheduler.py`` and ``memory_cache.py`` of waybarrios/vllm-mlx 0.4.1 (commit 4b654c09) and of
raullenchai/Rapid-MLX 0.12.18 (commit 7222ca77), which calls its loggers ``rapid_mlx``. No version is printed.
"""

from __future__ import annotations

from cachedoctor.engines.answering import JudgedTracker, Program, Told, keep_open
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals

ROWS: list[R] = [
    R("hit", "vllm_mlx", 0, 0, "I0", "[cache_fetch] request={id:word} HIT prompt_tokens={prompt:count} cached={cached:count} remaining={left:count} time={fetch_s:f}s",
      "INFO:vllm_mlx.scheduler:[cache_fetch] request=7b08a3bf-676 HIT prompt_tokens=51449 cached=51384 remaining=65 time=0.005s"),
    R("miss", "vllm_mlx", 0, 0, "I0", "[cache_fetch] request={id:word} MISS prompt_tokens={prompt:count} time={fetch_s:f}s entries={entries:count}",
      "INFO:vllm_mlx.scheduler:[cache_fetch] request=5d99e1c5-749 MISS prompt_tokens=79863 time=0.003s entries=5"),
    # before a miss: an entry shares this much, and its memory cannot go back to that place
    R("stuck", "vllm_mlx", 0, 0, "I0", "LCP unavailable: shared={matched:count} entry_len={held:count} requested_len={asked:count} non_trimmable=True",
      "INFO:rapid_mlx.memory_cache:[cache_fetch] LCP unavailable: shared=5679 entry_len=5760 requested_len=5710 non_trimmable=True"),
    R("stuck", "vllm_mlx", 0, 0, "I0", "LCP unavailable: shared={matched:count} entry_len={held:count} cache could not rewind exactly by {excess:count} tokens",
      "INFO:rapid_mlx.memory_cache:[cache_fetch] LCP unavailable: shared=5679 entry_len=5760 cache could not rewind exactly by 81 tokens"),
    R("stuck", "vllm_mlx", 0, 0, "D0", "LCP candidate: lcp={matched:count} entry_len={held:count} excess={excess:count} non_trimmable={stuck:word} cache_layers={layers:count} layer_types={layer_types:text}",
      "DEBUG:vllm_mlx.memory_cache:[cache_fetch] LCP candidate: lcp=29424 entry_len=79812 excess=50388 non_trimmable=True cache_layers=40 layer_types=['ArraysCache', 'ArraysCache', 'ArraysCache']"),
    # what is really computed: a hit may be dropped, and a miss may be found on disk
    R("scheduled", "vllm_mlx", 0, 0, "I0", "[schedule] request={id:word} uid={uid:count} prompt_tokens={prompt:count} tokens_to_prefill={computed:count} {more:rest}",
      "INFO:vllm_mlx.scheduler:[schedule] request=83da7ce8-0c4 uid=883 prompt_tokens=41108 tokens_to_prefill=41108 max_tokens=160 running=1 waiting=0"),
    R("scheduled", "vllm_mlx", 0, 0, "I0", "[schedule] request={id:word} uid={uid:count} prompt_tokens={prompt:count} tokens_to_prefill={computed:count}, {printed:count} cached {more:rest}",
      "INFO:rapid_mlx.scheduler:[schedule] request=83da7ce8-0c4 uid=884 prompt_tokens=51449 tokens_to_prefill=65, 51384 cached max_tokens=160 running=1 waiting=0"),
]  # fmt: skip

PREFIX = rb"(?:[A-Z]{4,8}+:(?:vllm|rapid)_mlx[\w.]{0,60}+:)?+(?:\[cache_fetch\] (?=LCP ))?+"
"""``INFO:vllm_mlx.scheduler:``, and what comes before a message about an entry that is not used."""


class Tracker(JudgedTracker):
    """Processes the events of one origin. A request is looked up when it arrives, and scheduled when there is space."""

    engine = "vllm-mlx"
    program = "vllm-mlx or Rapid-MLX"

    def prepare(self) -> None:
        """Create the state that is kept between lines."""
        self._open: dict[str, tuple[Told | None, Event | None]] = {}
        """Requests that are not scheduled yet, with a candidate that was printed for them."""
        self._stuck: Event | None = None
        """What was found for the request that is looked up next, and cannot be used."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        if event.message == "stuck":
            self._stuck = event if event.fields.get("stuck", "True") == "True" else None
            if "stuck" not in event.fields:
                self.lookup(event, event.fields.get("asked"), event.fields["matched"], event.fields["held"])
        elif event.message == "scheduled":
            self._scheduled(event)
        else:
            self._looked_up(event)

    def _looked_up(self, event: Event) -> None:
        stuck, self._stuck = self._stuck, None
        fields = event.fields
        cached = fields.get("cached", 0)
        matched = None if stuck is None or cached else stuck.fields["matched"]
        told = self.answered(event.line, fields["prompt"], cached, matched)
        self.weigh(event, told)
        candidate = stuck if matched is not None else None
        if candidate is not None and candidate.fields.get("stuck") is None:
            self.compare(candidate, told, candidate.fields["held"])
            candidate = None
        keep_open(self._open, fields["id"], (told, candidate))  # what is on disk is searched for only now

    def _scheduled(self, event: Event) -> None:
        fields = event.fields
        cached = fields["prompt"] - fields["computed"]
        told, candidate = self._open.pop(fields["id"], (None, None))
        if told is None:  # its line of the cache is not here
            self.weigh(event, self.answered(event.line, fields["prompt"], cached))
            return
        self.amend(told, cached)
        if candidate is not None:
            self.compare(candidate, told, candidate.fields["held"])


PROGRAM = Program(
    Tracker, Literals(b"[cache_fetch] ", b"[schedule] request=", b"LCP unavailable: shared="), ROWS, PREFIX
)
