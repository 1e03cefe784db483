"""Logs of which one measure is chosen: the slots, or the checkpoints of a request and with them its length.

On every slot a conversation grows; each second request was edited close to its end and
goes back to a checkpoint. Numbers are consistent: prompt = cached + processed, checkpoints lie where they were made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from gen_log import Log, Turn, write_end, write_launch, write_slot_choice, write_timings

ERA = "b11549-trace"
STEP = 64
"""Tokens from one checkpoint to the next."""
CONTEXT = 200_000
"""Tokens at which a conversation ends and its slot begins another."""
GENERATED = 40


def blocks(size: int, slots: int = 4, checkpoints: int = 8) -> Iterator[str]:
    """Requests in turns on the slots, each with so many new checkpoints, of at least ``size`` characters."""
    log, written, task = Log(ERA, random.Random(1)), 0, 0
    chats = [_Chat(slot, checkpoints) for slot in range(slots)]
    log.line(f"srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = 262144, kv_unified = 'false'")
    while written < size:
        for chat in chats:
            chat.write(log, task)
            task += 3
        text = log.take()
        written += len(text)
        yield text


class _Chat:
    """The conversation on a slot."""

    def __init__(self, slot: int, checkpoints: int) -> None:
        self._slot = slot
        self._checkpoints = checkpoints
        self._prompt = 0
        """Tokens of its last prompt, a multiple of STEP: there is a checkpoint at its end."""
        self._is_edit = False

    def write(self, log: Log, task: int) -> None:
        """The lines of its next request."""
        turn = self._next(task)
        write_slot_choice(log, turn)
        write_launch(log, turn)
        self._write_prompt(log, turn)
        write_timings(log, turn)
        write_end(log, turn)

    def _next(self, task: int) -> Turn:
        new = self._checkpoints * STEP
        if self._prompt > CONTEXT:
            self._prompt, self._is_edit = 0, False
        held = self._prompt + GENERATED - 1 if self._prompt else 0
        lcp = self._prompt - new // 4 // STEP * STEP if self._is_edit else held
        self._is_edit = not self._is_edit
        self._prompt = (lcp + new) // STEP * STEP
        return Turn(self._slot, task, self._prompt, held, lcp, GENERATED)

    def _write_prompt(self, log: Log, turn: Turn) -> None:
        """The prompt, the way back to the checkpoint at its common prefix, and the checkpoints made after it."""
        head = f"slot   operator(): id  {turn.slot} | task {turn.task} | "
        log.line(f"{head}new prompt, n_ctx_slot = 262144, n_keep = 0, task.n_tokens = {turn.prompt}")
        if turn.lcp < turn.held:
            for at in range(turn.held - GENERATED + 1, turn.lcp - 1, -STEP):
                log.line(f"{head}checking checkpoint with [{at - 1}, {at - 1}] against {turn.lcp}...")
            log.line(f"{head}restored context checkpoint ({_at(turn.lcp)}, n_past = {turn.lcp}, size = 62.813 MiB)")
        log.line(f"{head}cached n_tokens = {turn.lcp}, memory_seq_rm [{turn.lcp}, end)")
        first = (turn.lcp // STEP + 1) * STEP
        for number, at in enumerate(range(first, turn.prompt + 1, STEP), 1):
            made = f"created context checkpoint {number} of {self._checkpoints} ({_at(at)}, size = 62.813 MiB)"
            log.line(f"slot create_check: id  {turn.slot} | task {turn.task} | {made}")


def _at(tokens: int) -> str:
    return f"pos_min = {tokens - 1}, pos_max = {tokens - 1}, n_tokens = {tokens}"
