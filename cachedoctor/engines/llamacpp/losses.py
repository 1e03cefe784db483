"""What a slot lost between two requests: checkpoints dropped from its list, content replaced from a file, cleared while
idle, cleared for a LoRA, gone with a sleeping server.

Knows these lines and what they mean for the request that comes next. Knows neither timings nor rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp.accounting import NEAR
from cachedoctor.engines.llamacpp.slot_state import MAX_MIB, Choice, IdleSave, SlotState, Span
from cachedoctor.engines.llamacpp.threads import Thread
from cachedoctor.model import Dropped, Mark, Request

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker

_MAX_DROPPED = 256
"""Dropped checkpoints remembered per slot; a conversation drops about one a turn once its list is full."""
_MAX_SPANS = 64
"""Requests of a slot remembered since its content last came from elsewhere."""
MAX_LENGTHS = 256
"""Lengths that slots had after a request, to know one that comes back from a file."""
_MAX_CLEARED = 64
"""Conversations remembered whose idle slot was cleared; as many as there are threads."""


# ---- checkpoints dropped


def drop(slot: SlotState, event: Event) -> None:
    """Remember a checkpoint that left a full list, or that was too close to another."""
    fields = event.fields
    dropped = Dropped(
        fields.get("n_tokens", fields["pos_max"] + 1),
        fields["pos_min"],
        fields["pos_max"],
        min(fields["size"], MAX_MIB),
        slot.limit,
        event.message == "ckpt_erase_close",
        _roomy(slot),
        event.line,
        event.text,
    )
    slot.dropped = [*slot.dropped[1 - _MAX_DROPPED :], dropped]


def _roomy(slot: SlotState) -> bool:
    """Whether the list was known to be no more than half full when the request came."""
    held = slot.request.held_checkpoints if slot.request is not None else None
    return held is not None and slot.limit is not None and 2 * held <= slot.limit


def _missed(request: Request, slot: SlotState, window: int | None) -> Dropped | None:
    """Return the dropped checkpoint that would have given back most of the common prefix, if more than was reused.

    ``window``: of sliding-window memory in tokens, None when unknown. A checkpoint of such memory must reach back far
    enough behind the prefix (the strictest of the comparisons, b6751 to b11549); a recurrent state stands for itself.
    """
    lcp, start = request.common_prefix_tokens, request.marks["start"].line
    if lcp is None or request.cached_tokens is None:
        return None
    known = [d for d in slot.dropped if d.line < start and d.tokens <= lcp]
    usable = [d for d in known if d.pos_min in (0, d.pos_max) or (window is not None and d.pos_min < lcp - window - 1)]
    best = max(usable, key=lambda d: d.tokens, default=None)
    if best is None or best.tokens <= request.cached_tokens:
        return None
    # a longer list would hold what left after it, too, wherever that lay
    best.behind = sum(1 for d in slot.dropped if best.line <= d.line < start)
    return best


# ---- content from a file


def printed_length(tracker: Tracker, request: Request, printed: int, mark: Mark) -> None:
    """Compare what the server says the slot holds with what it was left with: a file changes that in between.

    So do requests whose lines are missing; a file saved in this life of the server has a length that a slot once had.
    """
    if request.held_tokens in (None, 0, printed) or request.restored_from_ram:
        return
    if printed in tracker.lengths:
        request.marks["slot_file"] = mark
        owner = tracker.threads.by_total(printed, 0, request.first_line)
        request.held_before, request.held_thread = request.held_thread, None if owner is None else owner.id


def fresh_slot(request: Request, slot: SlotState, choice: Choice) -> None:
    """Chosen by its content although it never served a request since the start: that content came from a file."""
    if not slot.used and slot.length == 0 and choice.selected_by == "lcp" and choice.found_keep is None:
        request.held_tokens = None
        request.marks["slot_file"] = choice.marks["select"]


def estimate_file(request: Request) -> None:
    """Estimate how much came from the file, from the rounded shares, where the server does not print it."""
    prompt, similarity, keep = request.prompt_tokens, request.similarity, request.f_keep
    if request.held_tokens is None and prompt and similarity and keep:
        request.held_tokens = round(similarity * prompt / keep)
        request.derived.append("held_tokens")


# ---- cleared


def _lora(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """Adapters or scales differ from the last request's: printed between the choice of the slot and the launch."""
    if slot.choice is None:
        slot.choice = Choice(event.line)  # a slot asked for by its number is taken without a line (up to b9713)
    slot.choice.marks["lora"] = Mark(event.line, event.text)


def _idle_saved(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """The RAM cache throws out its oldest prompt first: this one is gone once all that lie there now have left too."""
    gone_at = None if tracker.ram_prompts is None else tracker.evictions + tracker.ram_prompts + 1
    slot.idle_saved = IdleSave(Mark(event.line, event.text), gone_at)


def evicted(tracker: Tracker, event: Event) -> None:
    """Count prompts that left the RAM cache; one that was too large never got there."""
    if event.message != "pc_oversize":
        tracker.evictions += 1
        return
    for slot in tracker.slots.values():
        if slot.idle_saved is not None:
            slot.idle_saved.gone_at = tracker.evictions


def _ram_state(tracker: Tracker, event: Event, slot: SlotState) -> None:
    tracker.ram_prompts = event.fields["n_prompts"]


def cleared(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """Note whose text an idle slot held when it was cleared."""
    saved, slot.idle_saved, slot.dropped, slot.spans = slot.idle_saved, None, [], []
    thread = slot.cleared_thread if slot.thread is None else slot.thread
    if saved is None or thread is None or not event.fields["n_tokens"]:
        return
    if len(tracker.idle_cleared) >= _MAX_CLEARED:
        del tracker.idle_cleared[next(iter(tracker.idle_cleared))]
    tracker.idle_cleared[thread] = (Mark(event.line, event.text), saved)


def sleep(tracker: Tracker, event: Event) -> None:
    """A sleeping server keeps its ids and loses its context, and with it every cache."""
    tracker.asleep = True
    if tracker.session.n_requests:  # else there was nothing to lose
        tracker.slept, tracker.woken = Mark(event.line, event.text), True
    for slot in tracker.slots.values():
        slot.length, slot.thread, slot.checkpoints, slot.positions = 0, None, 0, []
        slot.dropped, slot.spans, slot.used = [], [], False


# ---- a checkpoint older than the text


def restored(request: Request, slot: SlotState, event: Event) -> None:
    """Find the request that changed text which the restored checkpoint still stands for.

    It was made by a request that processed its last position and made checkpoints at all; where one that came later
    parted from the slot's content before that position and made none, the checkpoint is older than the text.
    """
    end = event.fields["pos_max"]
    makers = [i for i, span in enumerate(slot.spans) if span.start <= end < span.end and span.created]
    if not makers or request.restored_from_ram:
        return  # made in an earlier life of this content, which was swapped in from RAM with its checkpoints
    for span in slot.spans[makers[-1] + 1 :]:
        if span.parted < end:
            request.marks["stale"], request.stale_from = span.mark, span.parted
            return


def _remember_span(request: Request, slot: SlotState) -> None:
    """Add what a finished request processed to the history of the slot's content, or begin a new one."""
    cached, prompt, mark = request.cached_tokens, request.prompt_tokens, request.marks.get("cached")
    whole = not (request.shifted or request.reused_chunks or request.images or request.restored_from_ram)
    if cached is None or prompt is None or mark is None or request.created is None or not whole or request.partial:
        slot.spans = []
        return
    parted = request.common_prefix_tokens if request.lcp_exact else cached
    if parted is None or ((request.restored or request.forced) and not request.lcp_exact):
        slot.spans = []
        return
    if parted >= prompt - 1:
        parted = prompt  # a repeated prompt computes its last token again
    slot.spans = [*slot.spans[1 - _MAX_SPANS :], Span(cached, prompt, parted, request.created, mark)]


# ---- what it means for a request


def settle(tracker: Tracker, request: Request, slot: SlotState, thread: Thread | None) -> None:
    """Give a finished request what was lost before it came, and forget what no longer lies in the slot."""
    if slot.dropped:
        # Where another conversation's text was held a swap from RAM may be hidden, unless the prefix is printed.
        same = request.lcp_exact or (thread is not None and thread.id == request.held_thread)
        same = same and not request.restored_from_ram and "slot_file" not in request.marks
        if same:
            missed = request.dropped = _missed(request, slot, tracker.session.setting("n_swa"))
            if missed is not None and missed.tokens - (request.cached_tokens or 0) > NEAR:
                tracker.session.sizes.short = max(tracker.session.sizes.short, missed.behind)
        start, kept = request.marks["start"].line, (request.common_prefix_tokens or 0) if same else 0
        slot.dropped = [d for d in slot.dropped if d.line > start or d.tokens <= kept]
    if tracker.session.memory == "swa":  # a recurrent checkpoint stands for one position: it cannot be half right
        _remember_span(request, slot)
    if request.released_tokens:
        tracker.lengths.append(request.released_tokens)
    if tracker.slept is not None and ((thread is None and tracker.woken) or _before(thread, tracker.slept)):
        request.marks["slept"] = tracker.slept
    tracker.woken = False
    if thread is not None and tracker.idle_cleared:
        found = tracker.idle_cleared.pop(thread.id, None)
        if found is not None and not request.restored_from_ram:
            cleared_at, saved = found
            if saved.gone_at is not None and slot.evictions >= saved.gone_at:
                request.marks["idle_cleared"], request.marks["idle_saved"] = cleared_at, saved.mark


def _before(thread: Thread | None, mark: Mark) -> bool:
    return thread is not None and thread.ended < mark.line


HANDLERS: dict[str, Callable[[Tracker, Event, SlotState], None]] = {
    "lora_clear": _lora,
    "idle_slot_save": _idle_saved,
    "pc_state": _ram_state,
}
