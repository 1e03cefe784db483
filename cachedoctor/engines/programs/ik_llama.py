"""ik_llama.cpp, a fork of llama.cpp: the lines of its server in its own words.

Source: ``examples/server/server-context.cpp`` of ik_llama.cpp, and logs of its issues from 2026-02 to 2026-04. It has no
versions.
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.answering import JudgedTracker, Program, keep_open
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.base import Message as R
from cachedoctor.engines.engine_record import Literals
from cachedoctor.knowledge.late_patterns import late

ROWS: list[R] = [
    R("chosen", "ik_llama", 0, 0, "I0", "======== Prompt cache: cache size: {held:count}, n_keep: {n_keep:d}, n_discarded_prompt: {n_discarded:d}, cache_ram_n_min: {least:d}, f_keep: {f_keep:share}, cache_ram_similarity: {threshold:f}",
      "======== Prompt cache: cache size: 11967, n_keep: 0, n_discarded_prompt: 0, cache_ram_n_min: 0, f_keep: 1.00, cache_ram_similarity: 0.50"),
    R("saving", "ik_llama", 0, 0, "I0", "- saving prompt with length {n_tokens:count}, total state size = {size_mib:mib} MiB",
      " - saving prompt with length 2823, total state size = 113.480 MiB"),
    R("launched", "ik_llama", 0, 0, "I0", "slot is processing task | tid={tid:word} timestamp={timestamp:d} id_slot={slot:count} id_task={task:d}",
      'INFO [   launch_slot_with_task] slot is processing task | tid="127061612023808" timestamp=1772656428 id_slot=0 id_task=55'),
    # the common prefix, compared as tokens, as text (in tokens of the slot and of the prompt), and as text without blanks
    R("common", "ik_llama", 0, 0, "I0", "======== Cache: cache_size = {held:count}, n_past0 = {exact:count}, n_past1 = {in_slot:count}, n_past_prompt1 = {in_prompt:count}, n_past2 = {loose_in_slot:count}, n_past_prompt2 = {loose_in_prompt:count}",
      "======== Cache: cache_size = 11967, n_past0 =  11967, n_past1 =  11967, n_past_prompt1 = 11967,  n_past2 =  11967, n_past_prompt2 =  11967"),
    R("common", "ik_llama", 0, 0, "I0", "======== Cache: cache_size = {held:count}, n_past = {in_slot:count}, n_past_prompt = {in_prompt:count}",
      "======== Cache: cache_size = 80546, n_past =  66940, n_past_prompt = 66940"),
    # before every batch of a prompt: the first one tells what was reused
    R("kept", "ik_llama", 0, 0, "I0", "kv cache rm [p0, end) | tid={tid:word} timestamp={timestamp:d} id_slot={slot:count} id_task={task:d} p0={p0:count}",
      'INFO [    batch_pending_prompt] kv cache rm [p0, end) | tid="127061612023808" timestamp=1772656428 id_slot=0 id_task=55 p0=11967'),
    R("timing", "ik_llama", 0, 0, "I0", "slot print_timing: id {slot:count} | task {task:d} |",
      "slot print_timing: id  1 | task -1 | "),
    R("computed", "ik_llama", 0, 0, "I0", "prompt eval time = {prompt_ms:ms} ms / {computed:count} tokens ({token_ms:f} ms per token, {rate:rate} tokens per second)",
      "prompt eval time =      21.47 ms /     1 tokens (   21.47 ms per token,    46.58 tokens per second)"),
    R("computed", "ik_llama", 0, 0, "I0", "slot print_timing: id {slot:count} | task {task:d} | prompt eval time = {prompt_ms:ms} ms / {computed:count} tokens ({token_ms:f} ms per token, {rate:rate} tokens per second)",
      "slot print_timing: id  0 | task 55 | prompt eval time =      21.47 ms /     1 tokens (   21.47 ms per token,    46.58 tokens per second)"),
    R("released", "ik_llama", 0, 0, "I0", "slot released | tid={tid:word} timestamp={timestamp:d} id_slot={slot:count} id_task={task:d} n_ctx={n_ctx:count} n_past={n_past:count} n_system_tokens={n_system:count} n_cache_tokens={n_cache:count} truncated={truncated:word}",
      'INFO [           release_slots] slot released | tid="127061612023808" timestamp=1772656427 id_slot=0 id_task=0 n_ctx=360192 n_past=11967 n_system_tokens=0 n_cache_tokens=11967 truncated=false'),
]  # fmt: skip

LLAMA_ROWS: list[R] = [
    R("ckpt_created", "slot", 0, 0, "I0", "created context checkpoint {index:count} of {max:count} (pos_min = {pos_min:d}, pos_max = {pos_max:d}, size = {size:mib} MiB, took {took_ms:ms} ms)",
      "slot create_check: id  0 | task 88 | created context checkpoint 3 of 32 (pos_min = 36863, pos_max = 36863, size = 63.100 MiB, took 12.20 ms)",
      shows=("checkpoint_counts", "checkpoints", "forcing", "makes_checkpoints", "rewinding")),
    R("ckpt_created", "slot", 0, 0, "I0", "created context checkpoint {index:count} of {max:count} (pos_min = {pos_min:d}, pos_max = {pos_max:d}, n_tokens = {n_tokens:count}, size = {size:mib} MiB, took {took_ms:ms} ms)",
      "slot create_check: id  0 | task 88 | created context checkpoint 3 of 32 (pos_min = 36863, pos_max = 36863, n_tokens = 36864, size = 63.100 MiB, took 12.20 ms)",
      shows=("checkpoint_counts", "checkpoints", "forcing", "makes_checkpoints", "rewinding")),
    R("ckpt_erased", "slot", 0, 0, "I0", "erased invalidated context checkpoint (pos_min = {pos_min:d}, pos_max = {pos_max:d}, size = {size:mib} MiB)",
      "slot apply_checkp: id  0 | task 88 | erased invalidated context checkpoint (pos_min = 40959, pos_max = 40959, size = 63.140 MiB)",
      shows=("checkpoint_counts", "checkpoints")),
    R("ckpt_restored", "slot", 0, 0, "I0", "restored context checkpoint took {took_ms:ms} ms (pos_min = {pos_min:d}, pos_max = {pos_max:d}, size = {size:mib} MiB)",
      "slot apply_checkp: id  0 | task 88 | restored context checkpoint took  7.10 ms (pos_min = 36863, pos_max = 36863, size = 63.100 MiB)",
      shows=("checkpoint_counts", "checkpoints", "rewinding")),
    R("ckpt_restored", "slot", 0, 0, "I0", "restored context checkpoint took {took_ms:ms} ms (pos_min = {pos_min:d}, pos_max = {pos_max:d}, n_tokens = {n_tokens:count}, n_past = {n_past:count}, size = {size:mib} MiB)",
      "slot apply_checkp: id  0 | task 15405 | restored context checkpoint took  11.87 ms (pos_min = 27643, pos_max = 27643, n_tokens = 27644, n_past = 27644, size = 112.790 MiB)",
      shows=("checkpoint_counts", "checkpoints", "rewinding")),
    R("pc_looking", "bare", 0, 0, "I0", "- looking for better prompt, base f_keep = {f_keep:keep}, sim = {sim:keep}, n_keep = {n_keep:d}, n_discarded_prompt = {n_discarded:d}",
      " - looking for better prompt, base f_keep = 0.713, sim = 0.702, n_keep = 0, n_discarded_prompt = 0",
      shows=("ram_cache", "ram_saves", "ram_search")),
    R("pc_found", "bare", 0, 0, "I0", "- found better prompt with f_keep = {f_keep:share}, sim = {sim:share}, n_keep = {n_keep:d}, n_discarded_prompt = {n_discarded:d}",
      " - found better prompt with f_keep = 0.998, sim = 0.961, n_keep = 0, n_discarded_prompt = 0",
      shows=("ram_cache", "ram_search")),
    R("pc_saving", "bare", 0, 0, "I0", "- saving prompt with length {length:count}, total state size = {size:mib} MiB",
      " - saving prompt with length 2823, total state size = 113.480 MiB",
      shows=("ram_cache", "ram_saves")),
]  # fmt: skip
"""Its wordings of llama-server's messages, for llama-server's tracker; without a build of llama.cpp."""

PREFIX = rb"[A-Z]{3,5} \[[ \w]{1,64}+\] "
"""``INFO [   launch_slot_with_task] ``: level and function."""

_LOOK = Literals(
    b"======== ",
    b"slot apply_checkp",
    b"batch_pending_prompt] ",
    sure=late(
        rb"(?m:^)(?:======== (?:Prompt cache: cache size: |Cache: cache_size = )\d|slot apply_checkp\w{0,16}: id +\d|"
        rb"INFO \[ {0,32}batch_pending_prompt\] kv cache rm \[p0, end\) \| tid=)"
    ),
)
"""Only lines that llama-server does not print; most lines of this program are the same as llama-server's."""


class _WorkingRequest(msgspec.Struct):
    """A request that a slot works on."""

    kept: int | None = None
    """Position from which on its memory was cleared, before the first batch of the prompt: tokens that are reused."""
    in_slot: int | None = None
    """Common prefix in tokens of the slot; None if none was printed, as nothing was to be reused."""
    in_prompt: int | None = None
    """The same text in tokens of the prompt."""

    def reused(self) -> int | None:
        """Tokens of the prompt that are reused; None if the log does not show.

        The same text may be more tokens in the slot than in the prompt. Then a position in the slot, such as that of a
        checkpoint, says nothing about the prompt, unless it is the end of the common prefix, or the token before it.
        """
        if self.kept is None or self.in_slot is None or self.in_prompt is None or self.in_slot == self.in_prompt:
            return self.kept
        back = self.in_slot - self.kept
        return self.in_prompt - back if back in (0, 1) else 0 if self.kept == 0 else None


class Tracker(JudgedTracker):
    """Processes the events of one origin. The line at the end of a request names only the slot, not the task."""

    engine = "ik_llama.cpp"
    program = "ik_llama.cpp"

    def prepare(self) -> None:
        """Create the state that is kept between lines."""
        self._open: dict[int, _WorkingRequest] = {}
        self._common: tuple[int, int] | None = None
        """Common prefix of the slot whose memory is cleared next, in tokens of the slot and of the prompt."""
        self._timed: int | None = None
        """Slot whose timings follow."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        fields = event.fields
        if event.message == "launched":
            keep_open(self._open, fields["slot"], _WorkingRequest())
        elif event.message == "common":
            self._common = fields["in_slot"], fields["in_prompt"]
        elif event.message == "kept":
            self._kept(fields["slot"], fields["p0"])
        elif event.message == "timing":
            self._timed = fields["slot"]
        elif event.message == "computed":
            slot, self._timed = fields.get("slot", self._timed), None
            if slot is not None:
                self._computed(event, slot)

    def _kept(self, slot: int, position: int) -> None:
        common, self._common = self._common, None
        request = self._open.get(slot)
        if request is None or request.kept is not None:  # a later batch of the same prompt
            return
        request.kept = position
        if common is not None:
            request.in_slot, request.in_prompt = common

    def _computed(self, event: Event, slot: int) -> None:
        request = self._open.pop(slot, None)
        if request is None:  # it began before this log
            return
        reused = request.reused()
        prompt = None if reused is None else reused + event.fields["computed"]
        self.weigh(event, self.answered(event.line, prompt, reused))


PROGRAM = Program(Tracker, _LOOK, ROWS, PREFIX, fork=True)
