"""One slot, from the choice of a prompt to its release: IDLE -> looked at -> chosen -> running -> released -> IDLE.

Every transition is a method with plain values. ``Observed`` records lines that concern only the request. Lines of
the log become calls of these methods in ``lines.py`` (one line) and ``fused.py`` (several lines at once). Copies in the
RAM prompt cache are remembered as far as their lines show.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cachedoctor.model import Mark, MarkName
from cachedoctor.model.bounds import SHARE
from cachedoctor.model.observed import MAX_CHECKS, UNCHOSEN, Asker, Choice, Dropped, Observed, SelectedBy, SlotCompared

MAX_PROMPTS = 256
"""Prompts remembered by length."""


class RamCache(msgspec.Struct, gc=False):
    """The prompts that the RAM prompt cache is known to hold, by length."""

    saved: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Length in tokens -> line that saved it. Emptied when any prompt is evicted: which one is not printed."""
    prompts: int | None = None
    """Number of prompts that it holds, as printed last."""

    def save(self, length: int, mark: Mark) -> None:
        """Remember a prompt that was saved."""
        self.saved.pop(length, None)
        self.saved[length] = mark
        if len(self.saved) > MAX_PROMPTS:
            del self.saved[next(iter(self.saved))]

    def held(self, length: int, before: int) -> Mark | None:
        """Line that saved a prompt of ``length`` tokens before line ``before``, or None."""
        mark = self.saved.get(length)
        return mark if mark is not None and mark.line < before else None

    def forget(self, length: int | None = None) -> None:
        """Forget a prompt of this length, which left the cache; None: an unknown prompt left it."""
        if length is None:
            self.saved.clear()
        else:
            self.saved.pop(length, None)


MAX_POSITIONS = 32
"""Positions of checkpoints remembered per slot; builds without check lines hold 8."""
MAX_CANDIDATES = 256
"""Prompts of the RAM cache that are listed for one request."""
_MAX_DROPPED = 256
"""Dropped checkpoints remembered per slot; a conversation drops about one a turn once its list is full."""
ANSWER = -1
"""Stands for the conversation of a further answer to one request (n > 1): none, unless the client keeps that answer."""
_MAX_STRETCHES = 64
"""Requests of a slot remembered since its content last came from elsewhere."""


class SlotStretch(msgspec.Struct, gc=False, frozen=True):
    """What a finished request did to the content of its slot, in tokens."""

    start: int
    """First token that it computed."""
    end: int
    """Length of its prompt."""
    diverged: int
    """Position at which it diverged from what the slot held."""
    created: int
    """Checkpoints that it made."""
    mark: Mark
    """The line that says what it reused."""


class IdleSave(msgspec.Struct, gc=False):
    """An idle slot is being saved to the RAM cache, after which it is cleared."""

    mark: Mark
    gone_at: int | None
    """Evictions of the session after which this copy is gone for certain; None when unknown."""


class RunMemory(msgspec.Struct, gc=False):
    """What one run of a server has shown so far."""

    shows_ram: bool = False
    """Whether the log shows if the RAM prompt cache was searched."""
    makes_checkpoints: bool = False
    """Whether the log shows lines that create or allow checkpoints: none is held if none was counted."""
    evictions: int = 0
    """Prompts that left the RAM prompt cache."""
    evicted: Mark | None = None
    """The last line that shows an eviction."""


class Slot:
    """The state of one slot of one server, as far as the log shows it."""

    __slots__ = (
        "checkpoints", "choice", "cleared_thread", "context", "dropped", "ended", "evictions", "id", "idle_saved",
        "length", "limit", "open", "owner", "positions", "positions_known", "released", "stretches", "thread", "used",
    )  # fmt: skip

    def __init__(self, id: int, length: int | None, *, positions_known: bool) -> None:
        self.id = id
        self.length = length
        """Tokens held; None when unknown."""
        self.thread: int | None = None
        """Conversation whose text it holds."""
        self.checkpoints = 0
        """Context checkpoints held, counted from the lines that create, erase and drop them."""
        self.positions: list[tuple[int, int]] = []
        """(pos_min, pos_max) of the last checkpoint that each request created: all there are up to b8156,
        which prints no checks."""
        self.positions_known = positions_known
        """No other checkpoints are held."""
        self.limit: int | None = None
        """Maximum checkpoints in its list, as printed with a creation."""
        self.dropped: list[Dropped] = []
        """Checkpoints of the present content that were dropped though still good."""
        self.stretches: list[SlotStretch] = []
        """What was done to the present content, oldest first."""
        self.used = False
        """A request was launched here since the start."""
        self.cleared_thread: int | None = None
        """Conversation whose text it held until a launch on another slot, which clears idle slots in this build."""
        self.idle_saved: IdleSave | None = None
        """It was saved for being idle, and not cleared yet."""
        self.evictions = 0
        """Evictions of the session when its request was given to it, before the RAM cache was searched."""
        self.choice: Choice | None = None
        self.open: Observed | None = None
        """The request that it processes, or that was released and still waits for its timing lines."""
        self.released = False
        self.owner = -1
        """Index of the request whose last checkpoint is the last of ``positions``."""
        self.context = 0
        """Tokens that fit into it, by the last prompt's line."""
        self.ended = -1
        """Task of its last finished request."""

    @property
    def idle(self) -> bool:
        """Whether the slot processes no request."""
        return self.open is None or self.released

    def serves(self, task: int) -> bool:
        """Whether the slot processes this task, or waits for the task's last lines."""
        return self.open is not None and self.open.task == task

    def request_of(self, task: int) -> Observed | None:
        """The open request of the slot if it is of this task."""
        return self.open if self.open is not None and self.open.task == task else None

    # ---- the choice

    def look(self, mark: Mark, lcp: int, n_prompt: int) -> bool:
        """Note that the server compares a prompt with the slot; returns whether the slot has not been chosen yet."""
        if self.choice is not None and self.choice.selected_by == "id":  # from b9873 on looked at after the choice
            self.choice.lcp, self.choice.n_prompt, self.choice.odd = lcp, n_prompt, True
            return False
        self.choice = Choice(mark.line, lcp=lcp, n_prompt=n_prompt, marks={"compared": mark}, odd=True)
        return True

    def take_over(self, choice: Choice | None) -> None:
        """Take over a choice that was printed before a new run of the server was recognised."""
        self.choice = choice

    def overlook(self) -> SlotCompared | None:
        """Note that another slot was chosen; returns what is known of this slot if it was checked."""
        choice = self.choice
        if choice is None or choice.selected_by is not None:
            return None
        self.choice = None
        if choice.lcp is None or not self.length or "compared" not in choice.marks:
            return None
        return SlotCompared(self.thread, self.length, choice.lcp, choice.marks["compared"])

    def choose(
        self,
        mark: Mark,
        by: SelectedBy | None,
        similarity: float | None,
        f_keep: float | None,
        t_last: int | None,
        evictions: int,
        others: Sequence[SlotCompared],
    ) -> None:
        """Note that the slot is chosen for the next prompt, and not the ``others`` that were checked."""
        looked = self.choice
        choice = self.choice = Choice(mark.line, by, similarity, f_keep, t_last, others=others, marks={"select": mark})
        if t_last == -1:
            choice.odd = True
        if looked is not None and looked.selected_by is None:
            choice.lcp, choice.n_prompt, choice.line = looked.lcp, looked.n_prompt, looked.line
            choice.odd |= looked.odd
        self.evictions = evictions

    def matched(self, lcp: int) -> None:
        """Note the common prefix, which the choice itself prints up to b6628."""
        if self.choice is not None:
            self.choice.lcp, self.choice.odd = lcp, True

    def adapter(self, mark: Mark) -> None:
        """Note other adapters or scales than in the last request; printed between the choice and the launch."""
        if self.choice is None:
            self.choice = Choice(mark.line)  # a slot asked for by its number is taken without a line (up to b9713)
        self.choice.marks["lora"] = mark

    # ---- the RAM prompt cache, between choice and launch

    def ram_searched(self, mark: Mark, f_keep: float | None, similarity: float | None) -> None:
        """Note that the RAM cache is searched for a better prompt; a negative share means that the slot is empty."""
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
        """Note that a better prompt is restored from the RAM cache."""
        choice = self.choice
        if choice is None:
            return
        choice.marks["ram"] = mark
        choice.looked = f_keep is not None and similarity is not None
        if choice.looked:
            choice.found_keep, choice.found_sim, choice.odd = f_keep, similarity, True
        else:  # which prompt it is cannot be told
            self.read_file()

    def ram_candidate(self, mark: Mark, length: int, lcp: int) -> None:
        """Note a prompt in the RAM cache, and the length of its common prefix with the new prompt."""
        choice = self.choice
        if choice is not None and len(choice.candidates) < MAX_CANDIDATES:
            choice.candidates = [*choice.candidates, (length, lcp)]
            choice.marks.setdefault("ram_candidate", mark)

    def ram_saved(self, length: int) -> None:
        """Note that the slot's content was saved to the RAM cache."""
        if self.choice is not None:
            self.choice.saved = length

    def ram_failed(self, mark: Mark) -> None:
        """Note that a prompt could not be restored from the RAM cache."""
        if self.choice is not None:
            self.choice.marks["ram_failed"] = mark

    # ---- the request

    def launch(self, index: int, task: int, mark: Mark, asked: Asker, before: RunMemory, *, partial: bool) -> Observed:
        """Start a request (``partial``: this line is not its first, but the first one in the log)."""
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
        self.open = request = Observed(
            index, self.id, task, first, mark.line, marks, choice, self.length, self.thread,
            self.checkpoints if counts else None, self.positions if counts else [], self.positions_known,
            not self.used, self.evictions, shows_ram, asked, partial,
            choice.odd or not self.used,
        )  # fmt: skip
        request.prompt_tokens = choice.n_prompt
        self.used, self.released = True, False
        return request

    def fit(self, context: int) -> None:
        """Note the slot's context in tokens, from the line of a prompt."""
        self.context = context

    def force(self, mark: Mark) -> None:
        """Note a forced full re-processing, which erases every checkpoint."""
        if not self.positions_known:
            self.positions, self.positions_known = [], True
        if self.open is not None:
            self.open.forced = self.open.odd = True
            self.open.marks["forced"] = mark

    def image(self) -> None:
        """Note that images are encoded for the slot's request."""
        if self.open is not None:
            self.open.images = True

    # ---- context checkpoints

    def stale(self, end: int) -> tuple[Mark, int] | None:
        """Return the request that changed text which a checkpoint up to position ``end`` still represents.

        Returns its line and where it diverged. A request that processed position ``end`` and made checkpoints made this
        one. If a later request diverged before that position and made none, the checkpoint is older than the text.
        """
        makers = [i for i, s in enumerate(self.stretches) if s.start <= end < s.end and s.created]
        if not makers:
            return None  # made for earlier content, which was swapped in from RAM with its checkpoints
        return next(((s.mark, s.diverged) for s in self.stretches[makers[-1] + 1 :] if s.diverged < end), None)

    def created(self, count: int, pos_min: int, pos_max: int, limit: int, line: int) -> None:
        """Note the checkpoints that the request made, the last one here; the server's list has ``limit`` places."""
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
        """Note an erased invalid checkpoint; ``position`` is None if the line's numbers are wrong (up to b6628).

        ``kept``: the reused tokens, if the line shows them.
        """
        seen = self.open
        if seen is not None:
            seen.erased = (seen.erased or 0) + 1
            seen.marks["erased"] = mark
            if position is not None and "cached" not in seen.marks:
                seen.reach, seen.kept = max(seen.reach, position[1] + 1), kept
                if kept and position[1] >= kept:
                    seen.parted = min(seen.parted or position[1] + 1, position[1] + 1)
                if kept == 0 and len(seen.erased_at) < MAX_CHECKS:
                    seen.erased_at = [*seen.erased_at, position]
        if position is not None:
            self._forget(position)
        elif seen is not None and "cached" not in seen.marks:
            self.positions = self.positions[:-1]  # before the prompt it is the newest, after it the oldest

    def drop(
        self, tokens: int | None, pos_min: int, pos_max: int, size: float | None, mark: Mark, *, crowded: bool
    ) -> None:
        """Note a checkpoint that left a full list, or was too close to another."""
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

    def answer(self, task: int, line: int) -> None:
        """Note the head of the timing block; ``grep slot`` omits its lines, which have no prefix (up to b9093)."""
        if self.open is not None and self.open.task == task:
            self.open.answered, self.open.last_line = True, line

    def release(self, tokens: int, truncated: bool, mark: Mark) -> bool:
        """Release the slot; returns whether the request is complete, because its timing lines came before."""
        seen = self.open
        if seen is None:
            return False
        seen.last_line, seen.released_tokens = mark.line, tokens
        if truncated:
            seen.truncated = seen.odd = True
        seen.marks["release"] = mark
        self.released = True
        return seen.generated_tokens is not None or seen.cancelled or seen.error is not None

    def finish(
        self,
        request: Observed,
        timing: Mark,
        prompt_ms: float | None,
        processed: int,
        reply_ms: float | None,
        generated: int,
        release: Mark,
        tokens: int,
        truncated: bool,
    ) -> None:
        """Process the timing lines of the request and the release, which were read together."""
        request.prompt_ms, request.processed_tokens = prompt_ms, processed
        request.reply_ms, request.generated_tokens = reply_ms, generated
        request.last_line, request.released_tokens = release.line, tokens
        if truncated:
            request.truncated = request.odd = True
        request.marks["timing"] = timing
        request.marks["release"] = release
        self.released = True

    def end(self, seen: Observed, *, lost: bool) -> Observed:
        """Return the open request and remove it. ``lost``: its end is not in the log."""
        untimed = seen.generated_tokens is None
        if untimed and self.released and self._refused(seen):
            seen.error, seen.error_tokens, seen.error_limit = "context-overflow", seen.prompt_tokens, self.context
            seen.odd = True
        self.open, self.released, self.ended = None, False, seen.task
        if lost:
            seen.partial = True
        elif untimed and seen.error is None and not (seen.partial or seen.answered):
            seen.cancelled = True  # released without timing lines
            seen.odd = True
        if seen.parent == -1:
            seen.parent = None
        return seen

    def _refused(self, seen: Observed) -> bool:
        """Whether one without a reply did not fit, and was given back before its first batch: some builds print nothing
        else of that."""
        if seen.prompt_tokens is None or not 0 < self.context <= seen.prompt_tokens or seen.error is not None:
            return False
        begun = seen.cached_tokens, seen.n_past, seen.progress, seen.processed_tokens
        return all(number is None for number in begun) and not seen.answered

    # ---- what it holds between requests

    def count(self, created: int, erased: int, limit: int | None) -> None:
        """Count the checkpoints that a request made and erased; the server's list has ``limit`` places."""
        held = max(0, self.checkpoints + created - erased)
        self.checkpoints = min(held, limit) if limit is not None and limit >= 0 else held

    def hold(self, length: int, thread: int | None) -> None:
        """Note that the slot contains the text of this conversation from now on."""
        self.length, self.thread = length, thread

    def belongs_to(self, thread: int | None) -> None:
        """Correct the conversation whose text the slot contains."""
        self.thread = thread

    def keep(self, dropped: list[Dropped]) -> None:
        """Keep only these dropped checkpoints, which belong to the present content."""
        self.dropped = dropped

    def processed(self, stretch: SlotStretch | None) -> None:
        """Note the part of the content that a request processed; None if unknown, which clears the history."""
        self.stretches = [] if stretch is None else [*self.stretches[1 - _MAX_STRETCHES :], stretch]

    def empty(self) -> None:
        """Note that the slot is empty."""
        self.length, self.thread = 0, None

    def read_file(self) -> None:
        """Note that a file replaced the slot's content."""
        self.length, self.thread, self.positions_known, self.dropped, self.stretches = None, None, False, [], []

    def save_idle(self, save: IdleSave) -> None:
        """Note that the slot is saved to the RAM cache because it is idle."""
        self.idle_saved = save

    def idle_copy_gone(self, evictions: int) -> None:
        """Note that the copy of the idle slot was too large for the RAM cache."""
        if self.idle_saved is not None:
            self.idle_saved.gone_at = evictions

    def clear(self) -> tuple[int | None, IdleSave | None]:
        """Empty the slot after its save to RAM; returns the conversation of its text, and that save."""
        thread = self.cleared_thread if self.thread is None else self.thread
        saved, self.idle_saved, self.dropped, self.stretches = self.idle_saved, None, [], []
        return thread, saved

    def clear_silently(self) -> None:
        """Empty the slot without a line, as its build does with idle slots at a launch elsewhere."""
        self.cleared_thread = self.thread
        self.length, self.thread, self.dropped, self.stretches = 0, None, [], []

    def sleep(self) -> None:
        """Empty the slot, because the server sleeps."""
        self.length, self.thread, self.checkpoints, self.positions = 0, None, 0, []
        self.dropped, self.stretches, self.used = [], [], False
