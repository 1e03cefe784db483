"""What the log printed of one request, before anything is concluded: ``new prompt, ... task.n_tokens = 2104``.

What its lines did not show is None, or empty. Counts of checkpoints and marks of its slot are written by
``engines/llamacpp/slot.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

import msgspec

from cachedoctor.model.log_lines import Mark
from cachedoctor.model.signs import MarkName

SelectedBy = Literal["lcp", "lru", "id"]


Between = tuple[int, int | None]
"""Lower and upper bound of a number, both possible; no upper one is None."""


class Progressed(msgspec.Struct, gc=False, frozen=True):
    """How much of a prompt was processed."""

    tokens: int
    """Tokens of the prompt done so far."""
    share: float
    """Share of the prompt done so far."""
    counts: Literal["all", "unless-reused", "computed"]
    """``tokens`` are all (b6900 to b9093), computed ones alone (b9294 and newer), or all where ``share`` is of the
    computed ones (up to b6751)."""


class Check(msgspec.Struct, gc=False):
    """A checkpoint that the server checked: positions it covers, and the threshold it had to be below."""

    pos_min: int
    pos_max: int
    threshold: int
    line: int
    text: bytes = b""
    """The line itself, where it was printed."""


class Dropped(msgspec.Struct, gc=False, frozen=True):
    """A context checkpoint that the server dropped though it was still good: its list was full, or too dense."""

    tokens: int
    """Prompt tokens that it covered."""
    pos_min: int
    pos_max: int
    size_mib: float | None
    limit: int | None
    """Checkpoints that the list holds; None if the log does not show it."""
    crowded: bool
    """Dropped for being too close to an earlier one (b10068 and newer), not because it was the oldest."""
    roomy: bool
    """The list was at most half full."""
    line: int
    text: bytes = b""
    behind: int = 1
    """Checkpoints dropped since, itself included: how much longer the list had to be to keep it."""


class Asker(msgspec.Struct, gc=False):
    """The client that sent a request, and when; only searched for if requests are listed."""

    child: bool = False
    """One of the choices of an ``n > 1`` request."""
    time: str | None = None
    """When it started, ISO 8601, as the wrapper of its first line shows."""
    client: str | None = None
    endpoint: str | None = None
    """Path of the HTTP request, if the log shows it unambiguously."""


NOBODY = Asker()
"""The ``Asker`` of requests that are not listed."""


class SlotCompared(msgspec.Struct, gc=False, frozen=True):
    """An idle slot that was compared with a prompt and not chosen."""

    thread: int | None
    """Conversation whose text it holds."""
    length: int
    lcp: int
    mark: Mark


class Choice(msgspec.Struct, gc=False):
    """A slot choice and what happened up to the launch; the server prints ``task -1`` on these lines."""

    line: int
    selected_by: SelectedBy | None = None
    similarity: float | None = None
    """Share of the new prompt that was already in the slot."""
    f_keep: float | None = None
    """Share of the slot's content that the new prompt kept."""
    t_last: int | None = None
    """Clock of the slot's last use as printed in an LRU choice, microseconds; -1 for a slot never used."""
    lcp: int | None = None
    """Exact common prefix from a ``checking sim`` line, tokens."""
    n_prompt: int | None = None
    """Prompt length from a ``checking sim`` line, tokens."""
    looked: bool = False
    """The RAM prompt cache was searched for a better prompt."""
    saved: int | None = None
    """Length of the prompt saved to the RAM cache, tokens."""
    found_keep: float | None = None
    found_sim: float | None = None
    """Shares of the better prompt that was swapped in."""
    candidates: Sequence[tuple[int, int]] = ()
    """(length, LCP) of the prompts in the RAM cache, where listed."""
    others: Sequence[SlotCompared] = ()
    """Contents of slots that were compared with the prompt and not chosen, if printed."""
    marks: dict[MarkName, Mark] = msgspec.field(default_factory=dict)
    odd: bool = False
    """A line shows more of the choice than the shares: what the prompt has in common with another text, or that it is
    empty."""


class KnownLength(msgspec.Struct, gc=False, frozen=True):
    """A length that a slot once had."""

    thread: int | None
    """Conversation that had last ended with it."""


_FOUND: frozenset[MarkName] = frozenset({"cached", "forced", "restored", "timing"})
"""Marks of a request that end its search for a checkpoint."""
_BEGUN: frozenset[MarkName] = frozenset(
    {"check", "checkpoint_failed", "erased", "failed", "forced", "n_past", "prompt", "restored", "select"}
)
"""Marks of a request whose beginning is in the log."""
MAX_CHECKS = 256
"""Checked checkpoints kept per request; a list holds 32 by default."""
_NEXT_LINES = 16
"""Lines between a failed batch and the errors that are sent for it."""
_MAX_TEXT = 2000
"""Characters kept of an ``old:`` / ``new:`` line."""
_end_of = attrgetter("pos_max")
UNCHOSEN = Choice(0)
"""The ``Choice`` of requests whose slot choice is not in the log."""


class Observed(msgspec.Struct, gc=False):
    """One request as printed. Token counts in tokens, times in milliseconds."""

    index: int
    slot: int
    task: int
    first_line: int
    last_line: int
    marks: dict[MarkName, Mark]
    """Lines kept as evidence, by what they show."""
    choice: Choice
    held_tokens: int | None
    """Length of the slot's content when the request took it."""
    held_thread: int | None
    held_checkpoints: int | None
    """Checkpoints the slot held then; None while none was ever printed."""
    held_positions: list[tuple[int, int]]
    """(pos_min, pos_max) of those whose creation was printed, the oldest first; meant for builds that print no checks
    (up to b8156)."""
    positions_known: bool
    """These are all checkpoints of the slot; false after a swap from RAM or a slot file, until the list is emptied."""
    fresh: bool
    """The slot had served no request since the start."""
    evictions: int
    """Prompts that had left the RAM cache when the slot was chosen."""
    shows_ram: bool
    """Lines that show whether the RAM prompt cache is searched had occurred."""
    asked: Asker
    partial: bool = False
    """The log begins, or ends, inside it."""
    odd: bool = False
    """A line shows more of the request than lengths, shares and times, or none shows what its slot held: its numbers
    alone do not show what it reused."""
    parent: int | None = None
    """Task whose ``n > 1`` choices include this one; -1 until that task is launched."""
    passed_over: tuple[int, ...] = ()
    """Conversations that idle slots held when this one was chosen, and that were emptied at its launch."""
    prompt_tokens: int | None = None
    cut_prompt: bool = False
    """The prompt did not fit, and the server truncated it (up to b6628)."""
    cached_tokens: int | None = None
    """What the first batch found in the slot."""
    n_past: int | None = None
    """Common prefix as printed for memory that may be unable to roll back."""
    n_cache: int | None = None
    """Length of the slot's content on the same line."""
    known_length: KnownLength | None = None
    """A slot had this length after an earlier request."""
    oldest_position: int | None = None
    """Smallest position that the memory still had, on the same line (b5586 to b9294)."""
    processed_tokens: int | None = None
    prompt_ms: float | None = None
    generated_tokens: int | None = None
    reply_ms: float | None = None
    answered: bool = False
    """The first line of its timing block was printed (up to b9093); without it the request was not answered."""
    released_tokens: int | None = None
    """Length of the slot after the reply."""
    truncated: bool = False
    shifted: bool = False
    """The context was shifted."""
    forced: bool = False
    """The server printed that it forces full re-processing."""
    truncate_failed_at: int | None = None
    checks: list[Check] | tuple[()] = ()
    tried: int | None = None
    restored: int | None = None
    created: int | None = None
    erased: int | None = None
    """Context checkpoints: checked, restored, created, erased."""
    restored_at: tuple[int, int] | None = None
    """(pos_min, pos_max) of the checkpoint that was restored."""
    restored_past: int | None = None
    """Reused tokens after that, as printed on the same line (b8352 and newer)."""
    kept: int | None = None
    """Reused tokens, as printed in the lines about erased checkpoints (``pos_next``, b8672 and newer)."""
    erased_at: list[tuple[int, int]] | tuple[()] = ()
    """(pos_min, pos_max) of the checkpoints that were erased because nothing is reused."""
    parted: int = 0
    """Tokens of the shortest checkpoint that was erased because the prompt diverges from the slot before its end; 0 if
    there was none."""
    reach: int = 0
    """Minimum tokens in the slot: the end of the farthest checkpoint that was checked, restored or erased."""
    progress: Progressed | None = None
    """The first line of its progress."""
    restore_failed: int | None = None
    """Tokens covered by a checkpoint that could not be restored."""
    stored_position: int | None = None
    batch_position: int | None = None
    """Where the memory ended, and where a batch refused for that reason began."""
    stale: tuple[Mark, int] | None = None
    """The line of an earlier request that changed text which the restored checkpoint still contains, and its
    position."""
    reused_chunks: int = 0
    """Tokens moved by --cache-reuse."""
    old_text: str | None = None
    new_text: str | None = None
    """Text around the divergence as printed by LLAMA_SERVER_SLOTS_DEBUG=1, the bar included."""
    cancelled: bool = False
    error: str | None = None
    error_tokens: int | None = None
    """Prompt tokens that an over-long request had, from its error."""
    error_limit: int | None = None
    images: bool = False

    @property
    def untimed(self) -> bool:
        """Whether nothing shows how long it ran, not even that the client disconnected."""
        return self.generated_tokens is None and self.processed_tokens is None and not (self.cancelled or self.error)

    @property
    def searching(self) -> bool:
        """Whether checkpoints were checked, and what it reuses is not known yet."""
        return bool(self.checks) and self.marks.keys().isdisjoint(_FOUND)

    def has_begun(self, message: str) -> bool:
        """Whether it has this line of its start, or a later one."""
        order: tuple[MarkName, ...] = ("forced", "cached", "restored", "check", "n_past", "prompt", "select")
        later = {"new_prompt": 6, "npast_posmin": 5}.get(message, 7)
        return any(name in self.marks for name in order[:later])

    def awaits(self, computed: int | None) -> bool:
        """Whether a timing line with so many prompt tokens fits; None: whether the reply's line does."""
        if computed is None:
            return self.processed_tokens is not None and self.generated_tokens is None
        known = self.prompt_tokens is not None and self.cached_tokens is not None
        return known and self.processed_tokens is None and self.prompt_tokens == (self.cached_tokens or 0) + computed

    # ---- what a line shows

    def extend(self, line: int) -> None:
        """A line of it has this number."""
        self.last_line = line

    def record_parent(self, task: int) -> None:
        """It is one of several choices of the request with this number; -1 until that is launched."""
        self.odd = True
        self.parent = task

    def record_passed_over(self, thread: int | None) -> None:
        """An idle slot held this conversation when its own was chosen, and is emptied now."""
        if thread is not None:
            self.passed_over = (*self.passed_over, thread)

    def record_prompt(self, tokens: int, mark: Mark) -> None:
        """Length of the prompt."""
        self.last_line = mark.line
        self.prompt_tokens = tokens
        self.marks["prompt"] = mark

    def record_cut(self, tokens: int, mark: Mark) -> None:
        """Up to b6628 an over-long prompt is truncated in the middle; what is left counts."""
        self.odd = True
        self.prompt_tokens, self.cut_prompt = tokens, True
        self.marks["cut"] = mark

    def record_sampler(self, tokens: int) -> None:
        """Length of the prompt as the sampler has it; the prompt's own line comes first."""
        if self.prompt_tokens is None:
            self.prompt_tokens = tokens

    def record_progress(self, now: Progressed) -> None:
        """First progress of the prompt."""
        if self.progress is None and 0 < now.share <= 1:
            self.progress = now

    def record_n_past(self, lcp: int, held: int, oldest: int | None, mark: Mark, known: KnownLength | None) -> None:
        """Common prefix and content as printed when the memory may be unable to roll back, some without ``oldest``."""
        self.odd = True
        self.n_past, self.n_cache, self.oldest_position = lcp, held, oldest
        self.known_length = known
        self.marks["n_past"] = mark

    def record_batch(self, cached: int, mark: Mark) -> None:
        """The first batch shows what was reused; the line is repeated for every batch."""
        if "cached" in self.marks:
            return
        self.last_line = mark.line
        self.marks["cached"] = mark
        if self._is_first_batch(cached):
            self.cached_tokens = cached

    def _is_first_batch(self, cached: int) -> bool:
        """Whether a batch line belongs to the first batch: a log may begin, or be truncated, inside a request."""
        if self.restored_past is not None and self.truncate_failed_at is None:
            return cached <= self.restored_past
        return not self.partial or not _BEGUN.isdisjoint(self.marks) or not cached

    def record_later_batch(self, mark: Mark) -> None:
        """The log begins inside the request: this may be any of its batches."""
        self.marks["cached"] = mark

    def record_failed_truncation(self, at: int | None, mark: Mark) -> None:
        """The memory could not be truncated at the end of the common prefix: nothing is reused."""
        self.odd = True
        if self.truncate_failed_at is None:
            self.truncate_failed_at, self.cached_tokens = at, 0
            self.marks["failed"] = mark

    def record_chunk(self, tokens: int) -> None:
        """--cache-reuse moved a piece of the prompt."""
        self.odd = True
        self.reused_chunks += tokens

    def record_text(self, text: str, mark: Mark, *, old: bool) -> None:
        """Text around the divergence, of what the slot held (``old``) or of the prompt."""
        if old:
            self.old_text, self.marks["old"] = text[:_MAX_TEXT], mark
        else:
            self.new_text, self.marks["new"] = text[:_MAX_TEXT], mark

    def record_shift(self, mark: Mark) -> None:
        """The context is shifted."""
        self.odd = True
        self.shifted = True
        self.marks["shift"] = mark

    def record_mark(self, name: MarkName, mark: Mark) -> None:
        """A line that is evidence by itself: nothing else of it is kept."""
        self.marks[name] = mark

    def record_positions(self, *, stored: int | None = None, batch: int | None = None) -> None:
        """Where the memory ended, or where the batch began."""
        self.stored_position = self.stored_position if stored is None else stored
        self.batch_position = self.batch_position if batch is None else batch

    def record_checks(self, checks: list[Check], tried: int, mark: Mark) -> None:
        """Checkpoints were checked: ``tried`` of them, of which ``checks`` are kept; ``mark``: the first line."""
        self.odd = True
        self.tried = (self.tried or 0) + tried
        self.reach = max(self.reach, max(map(_end_of, checks)) + 1)
        self.checks = [*self.checks, *checks[: MAX_CHECKS - len(self.checks)]]
        self.marks.setdefault("check", mark)

    def record_restore(
        self, pos_min: int, pos_max: int, past: int | None, mark: Mark, stale: tuple[Mark, int] | None
    ) -> None:
        """A checkpoint was restored; ``stale``: it contains text that an earlier request changed."""
        self.odd = True
        self.restored = (self.restored or 0) + 1
        self.restored_at, self.restored_past = (pos_min, pos_max), past
        self.reach = max(self.reach, pos_max + 1)
        self.marks["restored"] = mark
        if stale is not None and self.choice.found_keep is None:
            self.stale = stale

    def record_failed_restore(self, tokens: int, mark: Mark) -> None:
        """A checkpoint that covers ``tokens`` tokens could not be restored."""
        self.restore_failed = tokens
        self.marks["checkpoint_failed"] = mark

    def record_timing(self, ms: float | None, processed: int, mark: Mark) -> None:
        """The prompt's timing line; inf and nan are printed for nothing processed."""
        self.last_line = mark.line
        self.processed_tokens = processed
        self.prompt_ms = ms
        self.marks["timing"] = mark

    def record_reply(self, ms: float | None, tokens: int, line: int) -> None:
        """The reply's timing line."""
        self.last_line = line
        self.generated_tokens = tokens
        self.reply_ms = ms

    def record_cancel(self, line: int) -> None:
        """The client went away."""
        self.odd = True
        if self.error is None:
            self.cancelled, self.last_line = True, line

    def record_error(self, mark: Mark, bad_batch: Mark | None = None) -> None:
        """An error is sent for it; ``bad_batch``: the last line that reports a refused batch."""
        self.odd = True
        self.error = "other"
        if bad_batch is not None and 0 < mark.line - bad_batch.line <= _NEXT_LINES:
            self.marks["bad_batch"] = bad_batch
        self.last_line, self.marks["error"] = mark.line, mark

    def record_overflow(self, tokens: int | None, limit: int | None, mark: Mark) -> None:
        """The prompt does not fit; a length that is not printed is None."""
        self.odd = True
        self.error = "context-overflow"
        self.last_line, self.marks["error"] = mark.line, mark
        if tokens is not None:
            self.error_tokens, self.error_limit = tokens, limit
