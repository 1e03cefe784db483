"""One slot, from the choice of a prompt to its release: IDLE -> looked at -> chosen -> running -> released -> IDLE.

Every transition is a method with plain values. The only writer of ``Slot``, ``Choice`` and ``Observed``. Lines of the
log become calls of these methods in ``lines.py`` (one line) and ``blocks.py`` (several lines at once).
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.llamacpp.client_lines import Overlong
from cachedoctor.model import Mark, MarkName
from cachedoctor.model.bounds import SHARE
from cachedoctor.model.observed import UNCHOSEN, Asked, Check, Choice, Dropped, Known, Observed, Progressed, SelectedBy

_FOUND: frozenset[MarkName] = frozenset({"cached", "forced", "restored", "timing"})
"""Marks of a request that end its search for a checkpoint."""
MAX_POSITIONS = 32
"""Positions of checkpoints remembered per slot; builds without check lines hold 8."""
MAX_CHECKS = 256
"""Checked checkpoints kept per request; a list holds 32 by default."""
MAX_CANDIDATES = 256
"""Prompts of the RAM cache that are listed for one request."""
_MAX_DROPPED = 256
"""Dropped checkpoints remembered per slot; a conversation drops about one a turn once its list is full."""
_MAX_STRETCHES = 64
"""Requests of a slot remembered since its content last came from elsewhere."""
_MAX_TEXT = 2000
"""Characters kept of an ``old:`` / ``new:`` line."""


class Stretch(msgspec.Struct, gc=False, frozen=True):
    """What a finished request did to the content of its slot, in tokens."""

    start: int
    """First token that it computed."""
    end: int
    """Length of its prompt."""
    diverged: int
    """Where it diverged from what the slot held."""
    created: int
    """Checkpoints that it made."""
    mark: Mark
    """The line that says what it reused."""


class IdleSave(msgspec.Struct, gc=False):
    """An idle slot is being saved to the RAM cache, after which it is cleared."""

    mark: Mark
    gone_at: int | None
    """Evictions of the session after which this copy is gone for certain; None when unknown."""


class Before(msgspec.Struct):
    """What one life of a server has shown until now."""

    shows_ram: bool = False
    """Lines that say whether the RAM prompt cache was searched."""
    makes_checkpoints: bool = False
    """Lines that create checkpoints, or allow them: that none was counted means that none is held."""
    evictions: int = 0
    """Prompts that left the RAM prompt cache."""
    evicted: Mark | None = None
    """The last line that says so."""


class Slot(msgspec.Struct):
    """What the log lets us know of one slot of one server."""

    id: int
    length: int | None = None
    """Tokens held; None when unknown."""
    thread: int | None = None
    """Conversation whose text it holds."""
    checkpoints: int = 0
    """Context checkpoints held, counted from the lines that create, erase and drop them."""
    positions: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(pos_min, pos_max) of the last checkpoint that each request created: all there are up to b8156,
    which prints no checks."""
    positions_known: bool = True
    """No other checkpoints are held."""
    limit: int | None = None
    """Checkpoints that its list holds at most, as printed with a creation."""
    dropped: list[Dropped] = msgspec.field(default_factory=list)
    """Checkpoints of the present content that were dropped though still good."""
    stretches: list[Stretch] = msgspec.field(default_factory=list)
    """What was done to the present content, oldest first."""
    used: bool = False
    """A request was launched here since the start."""
    cleared_thread: int | None = None
    """Conversation whose text it held until the last launch elsewhere, which by its build clears idle slots."""
    idle_saved: IdleSave | None = None
    """It was saved for being idle, and not cleared yet."""
    evictions: int = 0
    """Evictions of the session when its request was given to it, before the RAM cache was searched."""
    choice: Choice | None = None
    open: Observed | None = None
    """The request that it processes, or that was released and still waits for its timing lines."""
    released: bool = False
    owner: int = -1
    """Index of the request whose last checkpoint is the last of ``positions``."""
    context: int = 0
    """Tokens that fit into it, by the last prompt's line."""
    ended: int = -1
    """Task of its last finished request."""

    @property
    def idle(self) -> bool:
        """Whether no request is processed here."""
        return self.open is None or self.released

    @property
    def untimed(self) -> bool:
        """Whether nothing says how long its request took: not even that the client went away."""
        seen = self.open
        return (
            seen is not None
            and seen.generated_tokens is None
            and seen.processed_tokens is None
            and not (seen.cancelled or seen.error)
        )

    def serves(self, task: int) -> bool:
        """Whether it works on this task, or waits for its last lines."""
        return self.open is not None and self.open.task == task

    def has_begun(self, message: str) -> bool:
        """Whether its request has this line of its beginning, or one that comes behind it."""
        marks = self.open.marks if self.open is not None else {}
        order: tuple[MarkName, ...] = ("forced", "cached", "restored", "check", "n_past", "prompt", "select")
        behind = {"new_prompt": 6, "npast_posmin": 5}.get(message, 7)
        return any(name in marks for name in order[:behind])

    # ---- the choice

    def look(self, line: int, lcp: int, n_prompt: int) -> bool:
        """The server compares a prompt with what this slot holds; returns whether it has not been chosen yet."""
        if self.choice is not None and self.choice.selected_by == "id":  # from b9873 on looked at after the choice
            self.choice.lcp, self.choice.n_prompt = lcp, n_prompt
            return False
        self.choice = Choice(line, lcp=lcp, n_prompt=n_prompt)
        return True

    def take_over(self, choice: Choice | None) -> None:
        """Its choice was printed in the lines before a new life of the server showed."""
        self.choice = choice

    def overlook(self) -> None:
        """Another slot was chosen."""
        if self.choice is not None and self.choice.selected_by is None:
            self.choice = None

    def choose(
        self,
        mark: Mark,
        by: SelectedBy | None,
        similarity: float | None,
        f_keep: float | None,
        t_last: int | None,
        evictions: int,
    ) -> None:
        """It is chosen for the next prompt."""
        looked = self.choice
        choice = self.choice = Choice(mark.line, by, similarity, f_keep, t_last, marks={"select": mark})
        if looked is not None and looked.selected_by is None:
            choice.lcp, choice.n_prompt, choice.line = looked.lcp, looked.n_prompt, looked.line
        self.evictions = evictions

    def matched(self, lcp: int) -> None:
        """The choice prints the common prefix itself (up to b6628)."""
        if self.choice is not None:
            self.choice.lcp = lcp

    def adapter(self, mark: Mark) -> None:
        """Adapters or scales differ from the last request's: printed between the choice of the slot and the launch."""
        if self.choice is None:
            self.choice = Choice(mark.line)  # a slot asked for by its number is taken without a line (up to b9713)
        self.choice.marks["lora"] = mark

    # ---- the RAM prompt cache, between choice and launch

    def ram_searched(self, mark: Mark, f_keep: float | None, similarity: float | None) -> None:
        """The RAM cache is searched for a prompt better than this slot's; a negative share says that it is empty."""
        choice = self.choice
        if choice is None:
            return
        choice.looked = True
        choice.marks["ram"] = mark
        if f_keep is None:
            return
        if f_keep < 0:
            self.empty()
        elif choice.f_keep is None:
            choice.f_keep, choice.similarity = f_keep, SHARE.of(similarity)

    def ram_found(self, mark: Mark, f_keep: float | None, similarity: float | None) -> None:
        """A better prompt comes back from the RAM cache."""
        choice = self.choice
        if choice is None:
            return
        choice.marks["ram"] = mark
        choice.looked = f_keep is not None and similarity is not None
        if choice.looked:
            choice.found_keep, choice.found_sim = f_keep, similarity
        else:  # which prompt it is cannot be told
            self.read_file()

    def ram_candidate(self, mark: Mark, length: int, lcp: int) -> None:
        """The RAM cache holds a prompt that shares so much with the new one."""
        choice = self.choice
        if choice is not None and len(choice.candidates) < MAX_CANDIDATES:
            choice.candidates.append((length, lcp))
            choice.marks.setdefault("ram_candidate", mark)

    def ram_saved(self, length: int) -> None:
        """What it holds was saved to the RAM cache."""
        if self.choice is not None:
            self.choice.saved = length

    def ram_failed(self, mark: Mark) -> None:
        """A prompt could not be brought back from the RAM cache."""
        if self.choice is not None:
            self.choice.marks["ram_failed"] = mark

    # ---- the request

    def launch(self, index: int, task: int, mark: Mark, asked: Asked, before: Before, *, partial: bool) -> None:
        """A request starts (or, ``partial``, this line of it is the first in the log)."""
        choice, shows_ram = self.choice, before.shows_ram
        if choice is None:
            choice, first, shows_ram = UNCHOSEN, mark.line, False
            marks: dict[MarkName, Mark] = {"start": mark}
            self.evictions = before.evictions
        else:
            self.choice, marks = None, choice.marks
            marks["start"] = mark
            first = choice.line if choice.line < mark.line else mark.line
            if choice.found_keep is not None:
                self.positions_known = False  # the prompt that came from RAM brought its own
        if before.evicted is not None:
            marks["evicted"] = before.evicted
        counts = before.makes_checkpoints
        self.open = Observed(
            index, self.id, task, first, mark.line, marks, choice, self.length, self.thread,
            self.checkpoints if counts else None, self.positions if counts else [], self.positions_known,
            not self.used, self.evictions, shows_ram, asked, partial,
        )  # fmt: skip
        self.open.prompt_tokens = choice.n_prompt
        self.used, self.released = True, False

    def passed_over(self, thread: int | None) -> None:
        """An idle slot held this conversation when this one was chosen, and is emptied now."""
        if self.open is not None and thread is not None:
            self.open.passed_over = (*self.open.passed_over, thread)

    def child(self) -> None:
        """Its request is one of several choices of a request that is launched next."""
        if self.open is not None:
            self.open.parent = -1

    def adopt(self, task: int) -> None:
        """The request of which its own is a choice has the number ``task``."""
        if self.open is not None and self.open.parent == -1:
            self.open.parent = task

    def at(self, line: int) -> None:
        """A line of its request stands here."""
        if self.open is not None:
            self.open.last_line = line

    def prompt(self, tokens: int, context: int, mark: Mark) -> None:
        """Length of the prompt, and of the context that it has to fit into."""
        self.context = context
        if self.open is not None:
            self.open.last_line = mark.line
            self.open.prompt_tokens = tokens
            self.open.marks["prompt"] = mark

    def cut(self, tokens: int, mark: Mark) -> None:
        """Up to b6628 an over-long prompt is cut in the middle; what is left counts."""
        if self.open is not None:
            self.open.prompt_tokens, self.open.cut_prompt = tokens, True
            self.open.marks["cut"] = mark

    def sampled(self, tokens: int) -> None:
        """Length of the prompt as the sampler has it; the prompt's own line comes first."""
        if self.open is not None and self.open.prompt_tokens is None:
            self.open.prompt_tokens = tokens

    @property
    def waits_for_progress(self) -> bool:
        """Whether nothing was printed yet of how far its prompt is."""
        return self.open is not None and self.open.progress is None

    def progress(self, said: Progressed) -> None:
        """How far the prompt is, for the first time."""
        if self.open is not None and self.open.progress is None and 0 < said.share <= 1:
            self.open.progress = said

    def n_past(self, lcp: int, held: int, oldest: int, mark: Mark, known: Known | None) -> None:
        """Common prefix and content as printed when the memory may be unable to go back."""
        if self.open is not None:
            self.open.n_past, self.open.n_cache, self.open.oldest_position = lcp, held, oldest
            self.open.known_length = known
            self.open.marks["n_past"] = mark

    def batch(self, cached: int, mark: Mark) -> None:
        """The first batch says what was reused; the line is repeated for every batch."""
        seen = self.open
        if seen is not None and "cached" not in seen.marks:
            seen.last_line = mark.line
            seen.marks["cached"] = mark
            seen.cached_tokens = cached

    def batch_of_unknown(self, mark: Mark) -> None:
        """The log begins inside the request: this may be any of its batches."""
        if self.open is not None:
            self.open.marks["cached"] = mark

    def truncate_failed(self, at: int | None, mark: Mark) -> None:
        """The memory could not be cut at the end of the common prefix: nothing is reused."""
        if self.open is not None and self.open.truncate_failed_at is None:
            self.open.truncate_failed_at, self.open.cached_tokens = at, 0
            self.open.marks["failed"] = mark

    def force(self, mark: Mark) -> None:
        """Full re-processing is forced, and every checkpoint is erased."""
        if not self.positions_known:
            self.positions, self.positions_known = [], True
        if self.open is not None:
            self.open.forced = True
            self.open.marks["forced"] = mark

    def chunk(self, tokens: int) -> None:
        """--cache-reuse moved a piece of the prompt."""
        if self.open is not None:
            self.open.reused_chunks += tokens

    def differs(self, text: str, mark: Mark, *, old: bool) -> None:
        """Text around the divergence, of what the slot held (``old``) or of the prompt."""
        if self.open is None:
            return
        if old:
            self.open.old_text, self.open.marks["old"] = text[:_MAX_TEXT], mark
        else:
            self.open.new_text, self.open.marks["new"] = text[:_MAX_TEXT], mark

    def image(self) -> None:
        """Images are encoded for its request."""
        if self.open is not None:
            self.open.images = True

    def shift(self, mark: Mark) -> None:
        """The context is shifted."""
        if self.open is not None:
            self.open.shifted = True
            self.open.marks["shift"] = mark

    def misplaced(self, mark: Mark) -> None:
        """The memory does not end where a batch of its request begins."""
        if self.open is not None:
            self.open.marks["positions"] = mark

    def place(self, *, stored: int | None = None, batch: int | None = None) -> None:
        """Where the memory ended, or where the batch began."""
        if self.open is not None:
            self.open.stored_position = self.open.stored_position if stored is None else stored
            self.open.batch_position = self.open.batch_position if batch is None else batch

    # ---- context checkpoints

    def checked(self, checks: list[Check], tried: int, mark: Mark) -> None:
        """Checkpoints were looked at: ``tried`` of them, of which ``checks`` are kept; ``mark``: the first line."""
        seen = self.open
        if seen is not None:
            seen.tried = (seen.tried or 0) + tried
            seen.reach = max(seen.reach, *(check.pos_max + 1 for check in checks))
            seen.checks = [*seen.checks, *checks[: MAX_CHECKS - len(seen.checks)]]
            seen.marks.setdefault("check", mark)

    def restored(self, pos_min: int, pos_max: int, past: int | None, mark: Mark) -> None:
        """A checkpoint was restored; it may stand for text that an earlier request changed."""
        seen = self.open
        if seen is None:
            return
        seen.restored = (seen.restored or 0) + 1
        seen.restored_at, seen.restored_past = (pos_min, pos_max), past
        seen.reach = max(seen.reach, pos_max + 1)
        seen.marks["restored"] = mark
        stale = None if seen.choice.found_keep is not None else self._stale(pos_max)
        if stale is not None:
            seen.stale = (stale.mark, stale.diverged)

    @property
    def searching(self) -> bool:
        """Whether checkpoints were looked at, and what its request reuses is not known yet."""
        seen = self.open
        return seen is not None and bool(seen.checks) and seen.marks.keys().isdisjoint(_FOUND)

    def restore_failed(self, tokens: int, mark: Mark) -> None:
        """A checkpoint that covers ``tokens`` tokens could not be restored."""
        if self.open is not None:
            self.open.restore_failed = tokens
            self.open.marks["checkpoint_failed"] = mark

    def _stale(self, end: int) -> Stretch | None:
        """The request that changed text which a checkpoint up to position ``end`` still stands for.

        It was made by a request that processed its last position and made checkpoints at all; where one that came later
        diverged from the slot's content before that position and made none, the checkpoint is older than the text.
        """
        makers = [i for i, s in enumerate(self.stretches) if s.start <= end < s.end and s.created]
        if not makers:
            return None  # made for earlier content, which was swapped in from RAM with its checkpoints
        return next((s for s in self.stretches[makers[-1] + 1 :] if s.diverged < end), None)

    def created(self, count: int, pos_min: int, pos_max: int, limit: int, line: int) -> None:
        """Its request made checkpoints, the last of them here; the server's list holds ``limit``."""
        seen = self.open
        if seen is None:
            return
        seen.last_line = line
        seen.created = (seen.created or 0) + count
        self.limit = limit
        if self.owner == seen.index:
            self.positions = self.positions[:-1]
        self.owner = seen.index
        kept = min(limit, MAX_POSITIONS) - 1
        self.positions = [*(self.positions[-kept:] if kept > 0 else ()), (pos_min, pos_max)]

    def erased(self, mark: Mark, position: tuple[int, int] | None, kept: int | None) -> None:
        """A checkpoint was erased as invalid; ``position`` is None where the line's numbers are wrong (up to b6628).

        ``kept``: what is reused, where the line says it.
        """
        seen = self.open
        if seen is not None:
            seen.erased = (seen.erased or 0) + 1
            seen.marks["erased"] = mark
            if position is not None and "cached" not in seen.marks:
                seen.reach, seen.kept = max(seen.reach, position[1] + 1), kept
                if kept == 0 and len(seen.erased_at) < MAX_CHECKS:
                    seen.erased_at = [*seen.erased_at, position]
        if position is not None:
            self._forget(position)
        elif seen is not None and "cached" not in seen.marks:
            self.positions = self.positions[:-1]  # in front of the prompt it is the newest, behind it the oldest

    def drop(
        self, tokens: int | None, pos_min: int, pos_max: int, size: float | None, mark: Mark, *, crowded: bool
    ) -> None:
        """A checkpoint left a full list, or was too close to another."""
        self.checkpoints = max(0, self.checkpoints - 1)
        self._forget((pos_min, pos_max))
        held = self.open.held_checkpoints if self.open is not None else None
        roomy = held is not None and self.limit is not None and 2 * held <= self.limit
        covered = pos_max + 1 if tokens is None else tokens
        dropped = Dropped(covered, pos_min, pos_max, size, self.limit, crowded, roomy, mark.line, mark.text)
        self.dropped = [*self.dropped[1 - _MAX_DROPPED :], dropped]
        if self.open is not None:
            self.open.marks["dropped"] = mark

    def _forget(self, position: tuple[int, int]) -> None:
        self.positions = [held for held in self.positions if held != position]

    # ---- the end

    def timed(self, ms: float | None, processed: int, mark: Mark) -> None:
        """The prompt's timing line; inf and nan are printed for nothing processed."""
        if self.open is not None:
            self.open.last_line = mark.line
            self.open.processed_tokens = processed
            self.open.prompt_ms = ms
            self.open.marks["timing"] = mark

    def awaits(self, computed: int | None) -> bool:
        """Whether a timing line with so many prompt tokens fits what is open; None: whether the reply's line does."""
        seen = self.open
        if seen is None or computed is None:
            return seen is not None and seen.processed_tokens is not None and seen.generated_tokens is None
        known = seen.prompt_tokens is not None and seen.cached_tokens is not None
        return known and seen.processed_tokens is None and seen.prompt_tokens == (seen.cached_tokens or 0) + computed

    def answer(self, task: int, line: int) -> None:
        """The head of the timing block; ``grep slot`` leaves its lines out, which have no prefix (up to b9093)."""
        if self.open is not None and self.open.task == task:
            self.open.answered, self.open.last_line = True, line

    def generated(self, ms: float | None, tokens: int, line: int) -> bool:
        """The reply's timing line; returns whether the request is over: up to b6628 its release comes first."""
        if self.open is None:
            return False
        self.open.last_line = line
        self.open.generated_tokens = tokens
        self.open.reply_ms = ms
        return self.released

    def release(self, tokens: int, truncated: bool, mark: Mark) -> bool:
        """The slot is released; returns whether nothing more is to come, as the timing lines were before it."""
        seen = self.open
        if seen is None:
            return False
        seen.last_line, seen.released_tokens = mark.line, tokens
        seen.truncated |= truncated
        seen.marks["release"] = mark
        self.released = True
        return seen.generated_tokens is not None or seen.cancelled or seen.error is not None

    def cancel(self, line: int) -> None:
        """The client went away."""
        if self.open is not None and self.open.error is None:
            self.open.cancelled, self.open.last_line = True, line

    def fail(self, error: Overlong | None, mark: Mark) -> None:
        """An error is sent for its request: an over-long prompt, or (None) another one."""
        seen = self.open
        if seen is None:
            return
        seen.error = "other" if error is None else "context-overflow"
        seen.last_line, seen.marks["error"] = mark.line, mark
        if error is not None and error.tokens is not None:
            seen.error_tokens, seen.error_limit = error.tokens, error.limit

    def end(self, *, lost: bool) -> Observed | None:
        """Give the request away. ``lost``: its end is not in the log."""
        seen = self.open
        if seen is None:
            return None
        if self.released and self._refused(seen):
            seen.error, seen.error_tokens, seen.error_limit = "context-overflow", seen.prompt_tokens, self.context
        self.open, self.released, self.ended = None, False, seen.task
        if lost:
            seen.partial = True
        elif seen.generated_tokens is None and seen.error is None and not (seen.partial or seen.answered):
            seen.cancelled = True  # released without timing lines
        if seen.parent == -1:
            seen.parent = None
        return seen

    def _refused(self, seen: Observed) -> bool:
        """Whether it did not fit, and was given back before its first batch: some builds print nothing else of that."""
        if seen.prompt_tokens is None or not 0 < self.context <= seen.prompt_tokens or seen.error is not None:
            return False
        begun = seen.cached_tokens, seen.n_past, seen.progress, seen.processed_tokens, seen.generated_tokens
        return all(number is None for number in begun) and not seen.answered

    # ---- what it holds between requests

    def count(self, created: int, erased: int, limit: int | None) -> None:
        """Count the checkpoints that a request made and erased; the server's list holds ``limit``."""
        held = max(0, self.checkpoints + created - erased)
        self.checkpoints = min(held, limit) if limit is not None and limit >= 0 else held

    def hold(self, length: int, thread: int | None) -> None:
        """From now on it holds the text of this conversation."""
        self.length, self.thread = length, thread

    def belongs_to(self, thread: int | None) -> None:
        """Its text is that of another conversation than was thought."""
        self.thread = thread

    def keep(self, dropped: list[Dropped]) -> None:
        """Of the dropped checkpoints only these belong to the present content."""
        self.dropped = dropped

    def processed(self, stretch: Stretch | None) -> None:
        """A request processed this stretch of the content; None where that is not known, and history begins again."""
        self.stretches = [] if stretch is None else [*self.stretches[1 - _MAX_STRETCHES :], stretch]

    def empty(self) -> None:
        """It holds nothing."""
        self.length, self.thread = 0, None

    def read_file(self) -> None:
        """A file replaced its content."""
        self.length, self.thread, self.positions_known, self.dropped, self.stretches = None, None, False, [], []

    def save_idle(self, save: IdleSave) -> None:
        """It is saved to the RAM cache for being idle."""
        self.idle_saved = save

    def idle_copy_gone(self, evictions: int) -> None:
        """What was saved for being idle was too large for the RAM cache."""
        if self.idle_saved is not None:
            self.idle_saved.gone_at = evictions

    def clear(self) -> tuple[int | None, IdleSave | None]:
        """It is emptied after its save to RAM; returns whose text it held, and that save."""
        thread = self.cleared_thread if self.thread is None else self.thread
        saved, self.idle_saved, self.dropped, self.stretches = self.idle_saved, None, [], []
        return thread, saved

    def clear_silently(self) -> None:
        """It is emptied without a line, as its build does with idle slots at a launch elsewhere."""
        self.cleared_thread = self.thread
        self.length, self.thread, self.dropped, self.stretches = 0, None, [], []

    def sleep(self) -> None:
        """A sleeping server keeps its slots and loses what they hold."""
        self.length, self.thread, self.checkpoints, self.positions = 0, None, 0, []
        self.dropped, self.stretches, self.used = [], [], False
