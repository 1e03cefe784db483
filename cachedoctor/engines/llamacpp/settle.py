"""Turns the printed lines of a request into its result: counts, common prefix, conversation, loss, in this order.

``settle`` reads what the log printed (``Observed``), the facts of the server (``Facts``) and the state that earlier
requests left (``ConversationMemory``). It returns the request's changes as ``Effects``; only the conversations are
updated directly. Most requests continue their slot's content and change nothing else: each step checks this first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from cachedoctor.engines.llamacpp import accounting
from cachedoctor.engines.llamacpp import accounting as intervals
from cachedoctor.engines.llamacpp import accounting as losses
from cachedoctor.engines.llamacpp.accounting import (
    BY_COMPUTED,
    BY_RELEASE,
    BY_SHARES,
    HALF,
    NEAR,
    CommonPrefix,
    Loss,
    SlotContent,
    TokenCounts,
)
from cachedoctor.engines.llamacpp.conversations.interleaved import KEPT
from cachedoctor.engines.llamacpp.conversations.join import (
    SPAN,
    UNSEEN,
    Conversations,
    Lengths,
    Moved,
    Thread,
    keeps_all,
)
from cachedoctor.engines.llamacpp.slot import IdleSave, RamCache, Slot, SlotStretch
from cachedoctor.model import Between, Facts, Mark, MarkName, Outcome, Request
from cachedoctor.model.log_lines import LogFile
from cachedoctor.model.observed import Choice, Dropped, KnownLength, Observed

Marks = Mapping[MarkName, Mark]

_CLOSE = 2
"""Tokens by which a length may differ from one that is calculated from rounded shares."""
MAX_LENGTHS = 256
"""Lengths that slots had after a request, to know one that comes back from a file."""
SAVED_BELOW = 0.5
"""Share of the slot's content that a prompt keeps, from which on the server neither saves it to RAM nor looks there."""
RETURNS = 0.75
"""Share of a state from the RAM cache that a prompt must keep to be taken for a turn of that conversation."""
LRU_MOST = 0.5
"""Share of a prompt that a slot chosen for its age holds at most: the threshold of similarity is 0.1 unless it was set
higher."""
FULL_AT = 256
"""Tokens of which the size of a context is a multiple."""
_UNMOVED: tuple[Sequence[Request], Mapping[int, int]] = ((), {})
_UNBOUNDED: Mapping[str, Between] = {}
_MAX_CLEARED = 64
"""Conversations remembered whose slot was cleared or erased, or whose state was refused; as many as threads."""


class ConversationMemory(msgspec.Struct, gc=False):
    """The state that earlier requests of one run of the server left."""

    conversations: Conversations = msgspec.field(default_factory=Conversations)
    ram: RamCache = msgspec.field(default_factory=RamCache)
    lengths: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_LENGTHS))
    erased: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Conversation whose slot was erased over the API -> the line that says that it was emptied."""
    purged: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Conversation whose idle slot was emptied to make room -> the line that says so."""
    idle_cleared: dict[int, tuple[Mark, IdleSave]] = msgspec.field(default_factory=dict)
    """Conversation whose idle slot was cleared -> the line that says so, and the copy in the RAM cache."""
    refused: dict[int | None, Mark] = msgspec.field(default_factory=dict)
    """Conversation whose last state was too large for the RAM cache -> the line that says so."""
    slept: Mark | None = None
    """When the server last fell asleep."""
    woken: bool = False
    """It has, and no request has ended since."""
    eventful: bool = False
    """The server slept, or a line said that the text or the state of a conversation was lost."""
    short: int = 0
    """Additional checkpoints that a list would have needed to keep every missing one."""
    asked: Facts | None = None
    roomy: bool = False
    """Whether the RAM cache is known to have kept everything, by the facts checked last: they rarely change."""

    def known(self, length: int, first_line: int) -> KnownLength | None:
        """The conversation that left a slot at this length before line ``first_line``; None if no request did."""
        if length not in self.lengths:
            return None
        owner = self.conversations.by_total(length, 0, first_line)
        return KnownLength(None if owner is None else owner.id)

    def is_roomy(self, facts: Facts) -> bool:
        """Whether the RAM cache is known to have kept the content of every reused slot."""
        if self.asked is not facts:
            self.asked, self.roomy = facts, _roomy(facts)
        return self.roomy

    def apply(self, effects: Effects) -> None:
        """Apply the changes of a finished request."""
        if effects.short > self.short:
            self.short = effects.short
        for length in effects.left_ram:
            self.ram.forget(length)
        if self.eventful:
            self.woken = False
            if effects.resumed is not None:
                self.erased.pop(effects.resumed, None)
                self.purged.pop(effects.resumed, None)
                self.idle_cleared.pop(effects.resumed, None)

    def sleep(self, mark: Mark | None) -> None:
        """Forget what the server loses with its memory; ``mark`` is None if there was nothing to lose."""
        self.ram.forget()
        if mark is not None:
            self.slept, self.woken, self.eventful = mark, True, True

    def clear_idle(self, thread: int, mark: Mark, saved: IdleSave) -> None:
        """Note that an idle slot with the text of this conversation was cleared."""
        if len(self.idle_cleared) >= _MAX_CLEARED:
            del self.idle_cleared[next(iter(self.idle_cleared))]
        self.idle_cleared[thread] = (mark, saved)
        self.eventful = True

    def erase(self, thread: int, mark: Mark) -> None:
        """Note that a slot with the text of this conversation was erased over the API."""
        if len(self.erased) >= _MAX_CLEARED:
            del self.erased[next(iter(self.erased))]
        self.erased[thread] = mark
        self.eventful = True

    def purge(self, thread: int, mark: Mark) -> None:
        """Note whose text an idle slot held when it was emptied to make room."""
        if len(self.purged) >= _MAX_CLEARED:
            del self.purged[next(iter(self.purged))]
        self.purged[thread] = mark
        self.eventful = True

    def refuse(self, thread: int, mark: Mark) -> None:
        """Note that the RAM cache did not accept the state of this conversation."""
        if len(self.refused) >= _MAX_CLEARED:
            del self.refused[next(iter(self.refused))]
        self.refused[thread] = mark
        self.eventful = True


class Content(msgspec.Struct, frozen=True, gc=False):
    """The slot's content when a request came, and its common prefix with the prompt."""

    numbers: TokenCounts
    held: SlotContent
    prefix: CommonPrefix
    marks: Marks
    swapped: bool
    """A prompt came back from the RAM cache."""
    filled: bool
    """The slot held what its last request did not leave there: a file's text, as a rule."""
    held_before: int | None
    """Conversation whose text a file replaced."""
    between: Mapping[str, Between]
    """Bounds of lengths that no line prints."""
    moved: list[Moved] | tuple[()]
    """Requests that belong to other conversations than was thought."""
    left_ram: tuple[int | None, ...]
    """Length of the prompt that left the RAM cache; None if that is unknown."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The conversation of a request, and its position in it."""

    thread: Thread | None
    """Conversation that it continues; None for a new one."""
    held: SlotContent
    reference: int | None
    """Tokens that could have been reused."""
    others: int = 0
    """Further conversations that the prompt could have extended."""
    returned: bool = False
    """The RAM cache restored a part of it, in a log that hides that."""
    moved: tuple[list[Request], dict[int, int]] | None = None
    """Earlier requests that are judged again, and the conversations of slots that this changes."""
    elsewhere: bool = False
    """Another slot held all of its last turn, and the server did not choose that slot."""


Numbers = tuple[
    int | None, int | None, int | None, int | None, dict[str, str], float | None, float | None, int | None, bool,
    tuple[int, int] | None, int | None, int | None, int | None, Outcome, int | None, int | None, int | None,
    int, bool | None,
]  # fmt: skip
"""What is concluded of every request, as ``Request`` has it, from its conversation on."""
Rest = tuple[int | None, int, bool, bool, int | None, Mapping[str, Between]]
"""What is concluded of few requests, as ``Request`` has it after that."""


class More(msgspec.Struct, frozen=True, gc=False):
    """Results of a request besides its numbers; most requests have none."""

    marks: Marks | None = None
    """Marks of its lines and of those that follow; None: only those of its lines."""
    rest: Rest = (None, 0, False, False, None, _UNBOUNDED)
    moved: tuple[list[Request], dict[int, int]] | None = None
    """Earlier requests that are judged again, and the conversations of slots that this changes."""
    left_ram: tuple[int | None, ...] = ()
    """Length of the prompt that left the RAM cache; None if that is unknown."""
    resumed: int | None = None
    """Conversation that it continues."""
    same: bool = True
    """The slot held this conversation, of which the prefix is known: dropped checkpoints are of it."""


NOTHING_MORE = More()


class Effects(msgspec.Struct, frozen=True, gc=False):
    """Changes by a finished request outside its own slot and conversation; most requests change nothing."""

    slot_threads: Mapping[int, int]
    """Slot -> conversation whose text it holds, where that is another than was thought."""
    kept: list[Dropped]
    """Dropped checkpoints that belong to the present content of its slot."""
    stretch: SlotStretch | None
    """What it processed of the content of its slot."""
    resumed: int | None
    """Conversation that it continues."""
    left_ram: tuple[int | None, ...]
    short: int
    """Additional checkpoints that its list would have needed to keep the missing one."""
    revised: Sequence[Request]
    """Earlier requests that belong to other conversations than was thought."""


def settle(
    seen: Observed,
    facts: Facts,
    past: ConversationMemory,
    file: LogFile,
    slot: Slot,
    slots: Mapping[int, Slot],
    *,
    shown: bool,
) -> tuple[Request, Effects | None]:
    """Derive the result of a request that has ended; returns the request, and its changes.

    Args:
        seen: printed values of the request.
        facts: facts of the server at its end.
        past: state that earlier requests left.
        file: file in which it begins.
        slot: slot that processed it; the caller applies the changes.
        slots: all slots of the server.
        shown: lines about checkpoints would be in this log.
    """
    talk = past.conversations
    found = None if seen.odd or past.eventful else plain(seen, facts, talk, shown=shown)
    if found is None or isinstance(found, Content):
        owner, numbers, more = concluded(seen, facts, past, slot, slots, found, shown=shown)
    else:
        (owner, numbers), more = found, NOTHING_MORE
    request = Request(
        seen.index, facts.index, file.path, seen.slot, seen.task, seen.first_line, seen.last_line, seen, facts,
        more.marks or seen.marks, file.before, seen.parent, seen.generated_tokens, seen.prompt_ms, seen.partial, shown,
        *numbers, *more.rest,
    )  # fmt: skip
    if owner is not None:
        talk.record(request, owner, seen.released_tokens or 0)
    if more is NOTHING_MORE and not slot.dropped and facts.memory != "swa":
        return request, None  # a plain request keeps all that its slot held
    return _effects(request, more, owner, facts, past, slot, slots)


def plain(seen: Observed, facts: Facts, talk: Conversations, *, shown: bool) -> tuple[Thread, Numbers] | Content | None:
    """Derive the result of a request that continues its slot's content, as most do, from its numbers alone.

    If it does not continue the content, return only the content; None if neither follows directly from the numbers.
    ``concluded`` and ``content`` give the same results step by step.
    """
    choice, memory = seen.choice, facts.memory
    similarity, keep, held, whose = choice.similarity, choice.f_keep, seen.held_tokens, seen.held_thread
    processed, released, generated = seen.processed_tokens, seen.released_tokens, seen.generated_tokens
    thread = talk.get(whose)
    if (
        thread is None or thread.taken is not None or not held or thread.total != held or choice.selected_by != "lcp"
        or processed is None or not released or not generated or generated > released
        or similarity is None or keep is None or keep <= HALF
        or not (shown or memory is None or memory == "attention")
    ):  # fmt: skip
        return None
    printed, reused = seen.prompt_tokens, seen.cached_tokens
    prompt = released - generated + 1 if printed is None else printed
    cached = prompt - processed
    low, high = (similarity - HALF) * prompt, (similarity + HALF) * prompt
    keep_low, keep_high = (keep - HALF) * held, (keep + HALF) * held
    if not (cached >= 0 and keep_low < high - 1 and keep_high > low + 1 and held > low):
        return None
    low, high = keep_low if keep_low > low else low, keep_high if keep_high < high else high
    least, most = (int(low + 0.999) if low > 0 else 0), int(high)
    most = prompt if prompt < most else most
    most = held if held < most else most
    most = most if most > least else least
    lcp = cached if cached and least <= cached <= most else held if least <= held <= most else (least + most + 1) // 2
    lcp = cached if cached > lcp else lcp
    derived = _DERIVED[printed is None, reused is None or reused > prompt]
    whole, restored = held - (held // 4 if held < _SHORT else KEPT), False if seen.shows_ram else None
    if (
        not whole or not (lcp >= whole or whole <= cached <= held + 8)
        or (
            restored is None and cached > KEPT
            and (cached > held + NEAR or cached > (similarity + 0.001) * prompt + NEAR)
        )
        or cached < (held if held < prompt else prompt - 1) - NEAR
    ):  # fmt: skip
        counts = TokenCounts(prompt, cached, processed, {**derived})
        prefix = CommonPrefix(lcp, False, (least, most), None, BY_SHARES)
        then = SlotContent(held, whose, None, similarity, keep)
        return Content(counts, then, prefix, seen.marks, False, False, None, _UNBOUNDED, (), ())
    return thread, (
        whose, prompt, cached, processed, derived, similarity,
        keep, lcp, False, (least, most), held, held, whose, "reused", held - cached if held > cached else 0,
        held - lcp if held > lcp else 0, lcp - cached, thread.turns, restored,
    )  # fmt: skip


_SHORT = 4 * KEPT
_DERIVED: dict[tuple[bool, bool], dict[str, str]] = {
    (prompt, cached): {
        **({"prompt_tokens": BY_RELEASE} if prompt else {}),
        **({"cached_tokens": BY_COMPUTED} if cached else {}),
        "common_prefix_tokens": BY_SHARES,
    }
    for prompt in (False, True)
    for cached in (False, True)
}
"""What is derived for a plain request, and how, by whether its prompt and its reuse are derived."""


def concluded(
    seen: Observed,
    facts: Facts,
    past: ConversationMemory,
    slot: Slot,
    slots: Mapping[int, Slot],
    held_then: Content | None = None,
    *,
    shown: bool,
) -> tuple[Thread | None, Numbers, More]:
    """Derive the result of any request: its slot's content, its conversation, its loss and the events before it.

    ``held_then``: the slot's content, if known. Returns the request's conversation with its results.
    """
    talk = past.conversations
    shifted = seen.shifted or (seen.truncated and not _full(seen, facts))
    found = held_then or content(seen, facts, past, shifted=shifted, shown=shown)
    place = turn(seen, found, facts, past, slot, slots)
    numbers, prefix, marks, thread, held = found.numbers, found.prefix, found.marks, place.thread, place.held
    own = thread is not None and thread.id == held.thread and not place.elsewhere
    refused, reference_lcp = False, None
    if not own or seen.stale is not None or past.eventful or (thread is not None and thread.taken is not None):
        refused, reference_lcp, marks = history(seen, place, past, marks)
    if found.swapped and held.thread is not None and not own and "ram" in marks:
        talk.take_copy(held.thread, prefix.tokens or numbers.cached or 0, marks["ram"])
    if seen.held_thread is not None and not (thread is not None and thread.id == seen.held_thread):
        _note_unsaved(seen, facts, past, seen.held_thread)
    owner = (thread or talk.open(seen.slot)) if _is_turn(seen, numbers, shifted=shifted) else None
    more = More(
        marks, (found.held_before, place.others, shifted, refused, reference_lcp, found.between),
        place.moved, found.left_ram, None if thread is None else thread.id,
        (prefix.exact or own) and not found.swapped and not found.filled and "slot_file" not in marks,
    )  # fmt: skip
    concerned = owner or thread
    return owner, (
        None if owner is None else owner.id, numbers.prompt, numbers.cached, numbers.processed, numbers.derived,
        held.similarity, held.f_keep, prefix.tokens, prefix.exact, prefix.between, place.reference, held.tokens,
        held.thread, *loss(seen, found, place), 0 if concerned is None else concerned.turns,
        found.swapped if seen.shows_ram else place.returned or None,
    ), more  # fmt: skip


def _effects(
    request: Request,
    more: More,
    owner: Thread | None,
    facts: Facts,
    past: ConversationMemory,
    slot: Slot,
    slots: Mapping[int, Slot],
) -> tuple[Request, Effects | None]:
    """What a request changes beside its slot and its conversation; and the request, where that shows more of it."""
    kept, short, resumed = slot.dropped, 0, owner.id if more is NOTHING_MORE and owner is not None else more.resumed
    if kept:
        request, kept, short = _dropped(request, kept, same=more.same)
    # a recurrent checkpoint stands for one position: it cannot be half right
    stretch = losses.stretch(request) if facts.memory == "swa" else None
    revised, slot_threads = more.moved or _UNMOVED
    if owner is not None and not keeps_all(request):
        talk, roomy = past.conversations, _gives_back(request.seen.choice, facts, past)
        request, later, slot_threads = _divided(request, owner, talk, slots, slot_threads, roomy=roomy)
        revised = [*revised, *later] if later else revised
    if slot.dropped or more.left_ram or revised or slot_threads or past.eventful or facts.memory == "swa":
        return request, Effects(slot_threads, kept, stretch, resumed, more.left_ram, short, revised)
    return request, None


def _note_unsaved(seen: Observed, facts: Facts, past: ConversationMemory, before: int) -> None:
    """Note that the conversation ``before`` lost its slot, where the log would show a copy and shows none."""
    talk = past.conversations
    lost = talk.get(before)
    if lost is None or seen.choice.saved is not None or not seen.held_tokens or "ram_saves" not in facts.shows:
        return
    if past.ram.held(lost.total, seen.first_line) is None:
        talk.lose_copy(before)


def content(seen: Observed, facts: Facts, past: ConversationMemory, *, shifted: bool, shown: bool) -> Content:
    """Return the slot's content, its common prefix with the prompt, and the token counts."""
    choice = seen.choice
    found: Marks = seen.marks
    moved: list[Moved] | tuple[()] = ()
    left_ram: tuple[int | None, ...] = ()
    numbers, held = accounting.counts(seen, shifted=shifted), accounting.held_content(seen)
    derived, prompt = numbers.derived, numbers.prompt
    swapped, filled, held_before = choice.found_keep is not None, False, None
    if seen.fresh or seen.n_past is not None:
        held, held_before, found = _printed_content(seen, held)
        if "slot_file" in found and held.tokens is None and prompt and held.similarity and held.f_keep:
            held = replace(held, tokens=round(held.similarity * prompt / held.f_keep))
            derived["held_tokens"] = "similarity and f_keep"
    shares, fits = accounting.shares(held, prompt)
    other = None
    if choice.selected_by == "lcp" and not (swapped or seen.n_past is not None or seen.reused_chunks):
        if not fits or held.prefix is not None:  # as nearly never
            other = _other_content(held, prompt, file="slot_files" in facts.shows)
        if other is not None:
            held, found, moved = _fill(seen, held, other, past, found)
            filled, shares = True, accounting.shares(held, prompt)[0]
    if swapped and seen.shows_ram:
        held, moved, left_ram = _swap(seen, held, prompt, past)
        shares = accounting.shares(held, prompt)[0]
    prefix = accounting.prefix(seen, held, numbers, shares, facts, shown=shown)
    if prefix.source is not None:
        derived["common_prefix_tokens"] = prefix.source
    between: Mapping[str, Between] = _UNBOUNDED
    if held.tokens is None or prompt is None:
        held, between, source = _completed(seen, held, numbers, prefix)
        if source is not None:
            derived["held_tokens"] = source
    return Content(numbers, held, prefix, found, swapped, filled, held_before, between, moved, left_ram)


def turn(
    seen: Observed, found: Content, facts: Facts, past: ConversationMemory, slot: Slot, slots: Mapping[int, Slot]
) -> Turn:
    """Find the conversation of the request."""
    talk, held, numbers, prefix = past.conversations, found.held, found.numbers, found.prefix
    cached, moved, others, again = numbers.cached, found.moved, 0, None
    whole = _whole_elsewhere(seen.choice, cached or 0, talk)
    if whole is not None:
        return Turn(whole, held, whole.total, elsewhere=True)
    unseen = not found.swapped and _came_unseen(seen, held, numbers)
    thread = None
    if not unseen and numbers.prompt is not None and seen.parent is None:
        thread = talk.goes_on(held.thread, held.tokens, prefix.tokens, cached)
    if thread is not None and held.tokens is not None and _ends_elsewhere(thread, slot, slots):
        moved = [*moved, *talk.stayed(thread, held.tokens, slot.id, seen.first_line)]
    if unseen:
        moved = [*moved, *talk.came_back(cached or 0, seen.first_line)]
    if moved:
        again = judge_again(moved, seen.index, talk, slots, {})
    if thread is None and seen.parent is None:
        choice, threads = seen.choice, {} if again is None else again[1]
        elsewhere = (threads.get(o.id, o.thread) for o in slots.values() if o is not slot and o.length)
        lengths = Lengths(
            numbers.prompt, cached, prefix.tokens, prefix.exact, held.tokens, held.thread, held.f_keep,
            seen.first_line, found.swapped, choice.looked and facts.ram_kept_all(), unseen,
            _gives_back(choice, facts, past), _skips_search(seen), _compared(choice, talk),
        )  # fmt: skip
        thread, others = talk.join(lengths, elsewhere)
    if thread is None:
        if not found.swapped and not facts.starts_cold and talk.began(held.thread):
            held = replace(held, thread=None)  # it may be this one's, of which earlier turns are missing
        return Turn(None, held, held.tokens, others, moved=again)
    if unseen and held.thread != thread.id and (cached or 0) < thread.prompt - KEPT:
        # RAM gave back its own copy, of which a part still matches: what it shares with the slot was less
        numbers.derived["restored_from_ram"] = "more tokens were reused than the slot contained"
        held = SlotContent(thread.total, thread.id, None, None, None)
        return Turn(thread, held, thread.total, returned=True, moved=again)
    reference: int | None = thread.total
    if found.filled and thread.id == held.thread:
        reference = held.tokens  # a file takes a conversation back to the turn at which it was saved
    return Turn(thread, held, reference, others, moved=again)


def _whole_elsewhere(choice: Choice, cached: int, talk: Conversations) -> Thread | None:
    """The conversation whose last turn, all of it in the prompt, an idle slot held that was compared and not chosen:
    the server requires more similarity than that."""
    if choice.selected_by != "lru" or choice.found_keep is not None:
        return None
    kept = [one for one in choice.others if one.lcp == one.length and one.length > cached + KEPT]
    best = max(kept, key=lambda one: one.length, default=None)
    thread = None if best is None else talk.get(best.thread)
    return thread if thread is not None and best is not None and thread.total == best.length else None


def _compared(choice: Choice, talk: Conversations) -> Mapping[int, int]:
    """Common prefix with the last prompt of conversations that other slots or the RAM cache held, where it is printed.

    Empty if the prompt shares as much with all of several: then it is what all prompts begin with.
    """
    found = {one.thread: one.lcp for one in choice.others if one.thread is not None}
    for length, lcp in choice.candidates if choice.found_keep is None else ():
        owner = talk.by_total(length, 0, choice.line)
        if owner is not None:
            found.setdefault(owner.id, lcp)
    best = max(found.values(), default=0)
    return found if len(found) < 2 or min(found.values()) < best - UNSEEN else {}


def loss(seen: Observed, found: Content, place: Turn) -> Loss:
    """Outcome and lost tokens, against the tokens that could have been reused."""
    held, numbers, cold = place.held, found.numbers, False
    if place.thread is None and numbers.prompt is not None:
        # Content of unknown origin may have been this conversation's: a log cut at its start shows no first request.
        cold = held.tokens == 0 or held.thread is not None
    prefix = place.reference if place.elsewhere else found.prefix.tokens
    lost = accounting.judge(
        seen.error, seen.cancelled, numbers.prompt, numbers.cached, prefix, place.reference, cold=cold
    )
    if lost[0] == "unknown" and seen.parent is None:
        return accounting.judge_cut(numbers.cached, found.prefix, place.reference)
    return lost


def history(seen: Observed, place: Turn, past: ConversationMemory, marks: Marks) -> tuple[bool, int | None, Marks]:
    """Return the events since the last turn of the conversation, as marks, and those of its copy in the RAM cache.

    Returns whether that cache had its previous prompt and did not restore it, the common prefix with that prompt, and
    the marks.
    """
    thread, refused, reference_lcp = place.thread, False, None
    if thread is not None and (place.held.thread != thread.id or place.elsewhere):
        refused, reference_lcp, marks = _own_copy(seen, thread.total, past.ram, marks)
        kept = next((one for one in seen.choice.others if (one.thread, one.length) == (thread.id, thread.total)), None)
        if reference_lcp is None and kept is not None and not seen.choice.found_keep:
            reference_lcp, marks = kept.lcp, {**marks, "slot_copy": kept.mark}
        saved = past.ram.held(thread.total, seen.first_line)
        if saved is not None and _skips_search(seen):
            marks = {**marks, "ram_unsearched": saved}
    if seen.stale is not None:
        marks = {**marks, "stale": seen.stale[0]}
    if thread is not None and thread.taken is not None:
        marks = {**marks, "ram_taken": thread.taken.mark}
    return refused, reference_lcp, _since_then(seen, thread, past, marks) if past.eventful else marks


def _completed(
    seen: Observed, held: SlotContent, numbers: TokenCounts, prefix: CommonPrefix
) -> tuple[SlotContent, Mapping[str, Between], str | None]:
    """What the slot held, bounds of lengths that no line prints, and where its length is from."""
    found: dict[str, Between] = {}
    shared: Between | None = prefix.between or (None if prefix.least is None else (prefix.least, None))
    if numbers.prompt is None:
        length = intervals.prompt(seen, shared, held.similarity, numbers.cached)
        if length is not None and length[0] > 0:
            found["prompt_tokens"] = length
    if held.tokens is not None:
        return held, found, None
    span = intervals.held_between(seen, shared, held.f_keep)
    if span is None:
        return held, found, None
    low, high = span
    if high is None and low - (numbers.cached or 0) <= NEAR:
        return held, found, None  # no more than was reused: how much else there was is unknown
    found["held_tokens"] = span
    if high is None:
        return replace(held, tokens=low), found, "at least the end of its checkpoints"
    return replace(held, tokens=(low + high + 1) // 2), found, "common prefix / f_keep"


def _divided(
    request: Request,
    thread: Thread,
    talk: Conversations,
    slots: Mapping[int, Slot],
    slot_threads: Mapping[int, int],
    *,
    roomy: bool,
) -> tuple[Request, list[Request], Mapping[int, int]]:
    """Divide the conversation of a turn where its last ones leave no other reading; returns the turn, the earlier
    requests that it shows to be another's, and the conversations of slots."""
    moved, more = talk.divide(thread, roomy=roomy)
    if more:
        request = talk.replace_last(replace(request, other_candidates=request.other_candidates + more), thread)
    if not moved:
        return request, [], slot_threads
    revised, slot_threads = judge_again(moved, request.index, talk, slots, slot_threads)
    request = next((m.turn.request for m in moved if m.turn.request.index == request.index), request)
    return request, revised, slot_threads


def _ends_elsewhere(thread: Thread, slot: Slot, slots: Mapping[int, Slot]) -> bool:
    """Whether another slot holds what is taken for the last turn of a conversation: one that is more similar to its
    next turn than an earlier one of it is, and would have been chosen."""
    return any(o is not slot and o.thread == thread.id and o.length == thread.total for o in slots.values())


def _gives_back(choice: Choice, facts: Facts, past: ConversationMemory) -> bool:
    """Whether the RAM cache would have given back a conversation that left its slot."""
    return _searches(choice) and past.is_roomy(facts)


def _roomy(facts: Facts) -> bool:
    """Whether the RAM cache is known to have kept all: builds from b8929 on warn where it is off, and what it refuses
    or evicts is printed at every level."""
    if not facts.starts_cold or facts.at_least(8929) is not True or facts.setting("cache_idle_slots") is False:
        return False
    return facts.setting("cache_ram_mib") != 0 and facts.ram_kept_all()


def _searches(choice: Choice) -> bool:
    """Whether the server looks into its RAM cache for this prompt: not where half of what the slot holds is kept.

    What is discarded then is not saved either (b6751 and newer).
    """
    return choice.selected_by == "lru" or (choice.selected_by == "lcp" and (choice.f_keep or 0.0) < SAVED_BELOW)


def _skips_search(seen: Observed) -> bool:
    """Whether the server took an empty slot because the request named it, without a search in the RAM cache."""
    return seen.choice.selected_by == "id" and seen.held_tokens == 0 and _left_out(seen)


def _left_out(seen: Observed) -> bool:
    """Whether the RAM cache was not searched for this request, in a log that shows searches."""
    return seen.shows_ram and "select" in seen.marks and not (seen.choice.looked or "ram" in seen.marks)


def _full(seen: Observed, facts: Facts) -> bool:
    """Whether "truncated" is only said of a reply that stopped at a full context: nothing is lost by that.

    Where no line has the size of the context, it ends at a multiple of 256, as contexts do.
    """
    length = (seen.released_tokens or 0) + 1
    return length % FULL_AT == 0 if facts.n_ctx_slot is None else length >= facts.n_ctx_slot


def _is_turn(seen: Observed, numbers: TokenCounts, *, shifted: bool) -> bool:
    """Whether what the slot holds now is a turn of a conversation: not of a child, not of what was refused."""
    if seen.released_tokens is None or seen.error is not None or seen.parent is not None:
        return False
    return numbers.prompt is not None or seen.cancelled or shifted


# ---- what the slot held


def _printed_content(seen: Observed, held: SlotContent) -> tuple[SlotContent, int | None, Marks]:
    """What the slot held where a file may have changed it: by what is printed, compared with what it was left with.

    Returns it with the conversation whose text was replaced, and the marks.
    """
    marks, before, choice = seen.marks, None, seen.choice
    if seen.fresh and seen.held_tokens == 0 and choice.selected_by == "lcp" and choice.found_keep is None:
        # chosen by its content although it never served a request since the start: that content came from a file
        held, marks = replace(held, tokens=None), {**marks, "slot_file": marks["select"]}
    if seen.n_past is not None:
        if held.tokens not in (None, 0, seen.n_cache) and choice.found_keep is None and seen.known_length is not None:
            marks, before = {**marks, "slot_file": marks["n_past"]}, held.thread
            held = replace(held, thread=seen.known_length.thread)
        held = replace(held, tokens=seen.n_cache, prefix=seen.n_past)
    return held, before, marks


def _swap(
    seen: Observed, held: SlotContent, prompt: int | None, past: ConversationMemory
) -> tuple[SlotContent, list[Moved], tuple[int | None, ...]]:
    """A better prompt came from RAM and left it: find whose it was, now that the prompt's length is known.

    Returns what the slot held then, the requests that were judged as turns of that conversation and belong to another,
    and the length of what left the RAM cache, None if that is unknown.
    """
    keep, similarity = held.f_keep, held.similarity
    if not keep or not similarity or not prompt:
        return held, [], ()
    total = held.tokens or similarity * prompt / keep
    slack = 1 if held.tokens else 2 + 0.001 * prompt / keep
    if keep < RETURNS and past.conversations.by_total(total, slack, seen.first_line) is None:
        # a turn of any conversation that begins alike: a client that changes its prompts gets its own older ones back
        earlier = past.conversations.by_turn(total, slack, seen.first_line)
        return replace(held, tokens=round(total), thread=None if earlier is None else earlier.id), [], (None,)
    thread, moved = _owner(total, slack, seen, past, file=False)
    if thread is None:
        return held, moved, (None,)
    return replace(held, thread=thread.id, tokens=thread.total), moved, (thread.total,)


def _other_content(held: SlotContent, prompt: int | None, *, file: bool) -> tuple[int, int] | None:
    """Bounds of what the slot held by the shares of its choice, where its last request cannot have left that there.

    ``file``: the server has read slot files; a slot of unknown content holds one.
    """
    if (held.tokens is None and not file) or held.f_keep is None:
        return None
    shared = intervals.of_prompt(prompt, held.similarity) if held.prefix is None else (held.prefix, held.prefix)
    span = None if shared is None else intervals.of_share(shared, held.f_keep)
    if span is None or span[1] is None:
        return None
    own = held.tokens is not None and span[0] - _CLOSE <= held.tokens <= span[1] + _CLOSE
    return None if own else (span[0], span[1])


def _fill(
    seen: Observed, held: SlotContent, span: tuple[int, int], past: ConversationMemory, marks: Marks
) -> tuple[SlotContent, Marks, list[Moved]]:
    """A slot holds what its last request did not leave there, and no line shows where that is from.

    It is from a file; or the slot was not emptied, as it was thought to be. Returns what it held, the marks, and the
    requests that were judged as turns of that conversation and belong to another.
    """
    middle, slack = sum(span) / 2, (span[1] - span[0]) / 2 + 1
    file = held.tokens != 0
    thread, moved = _owner(middle, slack, seen, past, file=file)
    if thread is None and held.tokens and span[0] - NEAR <= held.tokens <= span[1] + NEAR:
        return held, marks, []  # so near that its own length may have been mistaken
    if held.tokens and any(abs(length - middle) <= slack for length in past.lengths):
        marks = {**marks, "slot_file": marks["select"]}
    if thread is not None:
        return replace(held, tokens=thread.total, thread=thread.id), marks, moved
    earlier = past.conversations.by_turn(middle, slack, seen.first_line) if file else None
    return replace(held, tokens=None, thread=None if earlier is None else earlier.id), marks, moved


def _owner(
    total: float, slack: float, seen: Observed, past: ConversationMemory, *, file: bool
) -> tuple[Thread | None, list[Moved]]:
    """The conversation that left so many tokens, and the requests that were judged as its next turns until now."""
    thread = past.conversations.by_total(total, slack, seen.first_line)
    return (thread, []) if thread is not None else past.conversations.split(total, slack, seen.first_line, file=file)


def _came_unseen(seen: Observed, held: SlotContent, numbers: TokenCounts) -> bool:
    """Whether more was reused than the slot held of the prompt, in a log that hides what the RAM cache gives back."""
    cached, prompt, choice = numbers.cached, numbers.prompt, seen.choice
    if cached is None or prompt is None or cached <= KEPT or seen.shows_ram or seen.reused_chunks:
        return False
    if held.tokens is not None and cached > held.tokens + NEAR:
        return True
    if held.similarity is not None:
        return cached > (held.similarity + 0.001) * prompt + NEAR
    return choice.selected_by == "lru" and cached > LRU_MOST * prompt


def _own_copy(seen: Observed, reference: int, ram: RamCache, marks: Marks) -> tuple[bool, int | None, Marks]:
    """What the RAM cache made of the conversation's own previous prompt, whose length is ``reference``.

    Returns whether it was refused, its common prefix, and the marks.
    """
    choice = seen.choice
    lcps = {lcp for length, lcp in choice.candidates if length == reference}
    lcp = lcps.pop() if len(lcps) == 1 else None
    looked = choice.looked and seen.shows_ram and choice.found_keep is None and "ram_failed" not in marks
    saved = ram.held(reference, seen.first_line)
    refused = looked and (lcp is not None or saved is not None)
    return refused, lcp, {**marks, "ram_copy": saved} if refused and saved is not None else marks


# ---- what was lost before it came


def _since_then(seen: Observed, thread: Thread | None, past: ConversationMemory, marks: Marks) -> Marks:
    """Marks of what happened since the last turn of the conversation: the server slept, its idle slot was cleared, its
    state was too large for the RAM cache."""
    slept = past.slept
    if slept is not None and (past.woken if thread is None else thread.ended < slept.line):
        marks = {**marks, "slept": slept}
    too_large = None if thread is None else past.refused.get(thread.id)
    if too_large is not None and too_large.line < seen.marks["start"].line:
        marks = {**marks, "too_large": too_large}
    erased = None if thread is None else past.erased.get(thread.id)
    if erased is not None:
        marks = {**marks, "slot_erased": erased}
    purged = None if thread is None else past.purged.get(thread.id)
    if purged is not None:
        marks = {**marks, "slot_purged": purged}
    if thread is not None and past.idle_cleared:
        found = past.idle_cleared.get(thread.id)
        if found is not None and seen.choice.found_keep is None:
            cleared, saved = found
            if saved.gone_at is not None and seen.evictions >= saved.gone_at:
                marks = {**marks, "idle_cleared": cleared, "idle_saved": saved.mark}
    return marks


def _dropped(request: Request, dropped: list[Dropped], *, same: bool) -> tuple[Request, list[Dropped], int]:
    """Find the dropped checkpoint that would have helped.

    ``same``: the slot held this conversation. Where another's text was held a swap from RAM may be hidden, unless the
    prefix is printed. Returns the request, the checkpoints whose text is still there, and how much longer the list had
    to be.
    """
    missed = losses.missed(request, dropped) if same else None
    start, kept = request.marks["start"].line, (request.common_prefix_tokens or 0) if same else 0
    left = [d for d in dropped if d.line > start or d.tokens <= kept]
    if missed is None:
        return request, left, 0
    short = missed.behind if missed.tokens - (request.cached_tokens or 0) > NEAR else 0
    return replace(request, dropped=missed), left, short


# ---- requests that belong to other conversations


def follow(
    request: Request,
    thread: int,
    turn: int,
    held_thread: int | None,
    total: int | None,
    kept: int | None,
    together: int = 0,
    *,
    uncached: bool = False,
) -> Request:
    """Judge a request as a turn of the conversation that its text shows; the text is given besides the log.

    Args:
        request: result from its lengths.
        thread: the conversation.
        turn: number of the turn, 0 for the first.
        held_thread: conversation of the slot's content; None if unknown.
        total: tokens of the previous turn and its reply in its slot; None if unknown.
        kept: tokens of these that the new text keeps; None if unknown.
        together: tokens of its beginning that another request computed at the same time.
        uncached: the request asks for no cache.
    """
    reference = request.held_tokens if not turn else total
    outcome, lost, client, server = accounting.judge(
        request.seen.error, request.seen.cancelled, request.prompt_tokens, request.cached_tokens,
            request.common_prefix_tokens,
        reference, cold=not turn and request.prompt_tokens is not None,
    )  # fmt: skip
    if lost and kept is not None and held_thread != thread:
        server = min(lost, max(0, kept - (request.cached_tokens or 0)))  # what its slot held says nothing of it
        client = lost - server
    return replace(
        request, thread=thread, thread_turn=turn, held_thread=held_thread, other_candidates=0, outcome=outcome,
        lost_tokens=lost, lost_client=client, lost_server=server, reference_tokens=reference, text_lcp=kept,
        together_tokens=together, uncached=uncached,
    )  # fmt: skip


def settle_unsearched(past: ConversationMemory, slot: Slot, length: int, mark: Mark) -> Request | None:
    """Judge the last request of a slot again: its prompt begins with a RAM cache entry of ``length`` tokens.

    ``mark``: the line that shows this when the prompt is saved. Returns None if the cache was searched for the request,
    if the entry may be newer, or if nothing was computed twice.
    """
    thread = past.conversations.get(slot.thread)
    before = None if thread is None else thread.recent[-1].request
    if thread is None or before is None or before.slot != slot.id or before.seen.released_tokens != slot.length:
        return None
    copy = past.ram.held(length, before.first_line)
    prompt, cached = before.prompt_tokens, before.cached_tokens
    if copy is None or prompt is None or cached is None or not _left_out(before.seen):
        return None
    reference = min(length, prompt)
    shared = 0 if before.held_tokens == 0 else before.common_prefix_tokens
    if shared is None or shared >= reference - NEAR:
        return None  # its slot held as much
    outcome, lost, client, server = accounting.judge(
        before.seen.error, before.seen.cancelled, prompt, cached, reference, reference, cold=False
    )
    if outcome not in ("partial", "reprocessed"):
        return None
    marks = {**before.marks, "ram_unsearched": mark, "ram_copy": copy}
    again = replace(
        before, outcome=outcome, lost_tokens=lost, lost_client=client, lost_server=server, reference_tokens=reference,
        reference_lcp=reference, other_candidates=0, marks=marks, revision=before.revision + 1,
    )  # fmt: skip
    return past.conversations.replace_last(again, thread)


def judge_again(
    moved: Sequence[Moved],
    current: int,
    talk: Conversations,
    slots: Mapping[int, Slot],
    slot_threads: Mapping[int, int],
) -> tuple[list[Request], dict[int, int]]:
    """Judge requests again, as turns of the right conversation; returns the requests that may still change.

    Final requests stay as reported. ``current``: number of the request that showed the error. ``slot_threads``: slot ->
    conversation, if it differs from the slot's; returned with the changes of these moves.
    """
    revised, owners = [], dict(slot_threads)
    for move in moved:
        before = move.turn.request
        slot = slots.get(before.slot)
        if slot is not None and (owners.get(slot.id, slot.thread), slot.length) == (
            before.thread,
            before.seen.released_tokens,
        ):
            owners[slot.id] = move.thread
        reference = move.total or before.held_tokens
        outcome, lost, client, server = accounting.judge(
            before.seen.error, before.seen.cancelled, before.prompt_tokens, before.cached_tokens,
            before.common_prefix_tokens,
            reference, cold=not move.total,
        )  # fmt: skip
        again = replace(
            before, thread=move.thread, thread_turn=move.number, held_thread=move.held_thread, outcome=outcome,
            lost_tokens=lost, lost_client=client, lost_server=server, reference_tokens=reference,
            revision=before.revision + (before.index != current),
        )  # fmt: skip
        talk.take_back(move, again)
        if before.index != current and current - before.index < SPAN:
            revised.append(again)
    return revised, owners
