"""The life of a request: launched, timed, released, finished. Knows the order of events in each era.

Knows no wording of a line and no rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp import accounting, choosing, losses
from cachedoctor.engines.llamacpp.slot_state import SlotState
from cachedoctor.engines.llamacpp.threads import SPAN, Moved
from cachedoctor.model import Mark, Request
from cachedoctor.model.bounds import LONGEST

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker

SHOWS_CHECKPOINTS = frozenset(
    {
        "new_prompt",
        "seq_rm",
        "ckpt_created",
        "ckpt_created_swa",
        "ckpt_check",
        "ckpt_restored",
        "ckpt_erased",
        "force_full",
        "pc_looking",
    }
)
MAKES_CHECKPOINTS = frozenset({"ckpt_created", "ckpt_created_swa", "ckpt_enabled"})


def begin(tracker: Tracker, slot: SlotState, task: int, line: int, text: bytes, partial: bool = False) -> Request:
    """Open the request that a line starts (or, ``partial``, whose first line in this log it is)."""
    if slot.request is not None:
        finish(tracker, slot, lost=not slot.released)
    session, choice = tracker.session, slot.choice
    request = Request(tracker.number(), session.index, tracker.path, slot.id, task, line, line, partial=partial)
    session.n_requests += 1
    session.several = session.n_requests > 1
    if tracker.clients is not None:
        tracker.clients.launched(request, line)
    request.held_tokens = slot.length
    request.held_thread = slot.thread
    request.marks["start"] = Mark(line, text)
    if tracker.makes_checkpoints:
        request.held_checkpoints = slot.checkpoints
        request.held_positions = slot.positions
    if choice is not None and choice.found_keep is not None:
        slot.positions_known = False  # the prompt that came from RAM brought its own
    request.positions_known = slot.positions_known
    if choice is not None:
        choosing.hand_over(choice, request, tracker)
        losses.fresh_slot(request, slot, choice)
        slot.choice = None
    else:
        slot.evictions = tracker.evictions
    slot.used = True
    slot.request, slot.released = request, False
    return request


def of_event(tracker: Tracker, event: Event, slot: SlotState) -> Request:
    """Return the request that a slot line belongs to; a log that begins in the middle opens it here."""
    request = slot.request
    if request is None or (event.task >= 0 and request.task != event.task):
        request = begin(tracker, slot, event.task, event.line, event.text, partial=True)
    request.last_line = event.line
    return request


def launch(tracker: Tracker, slot: SlotState, task: int, line: int, text: bytes, child: bool) -> None:
    """Start a task on a slot; choices of ``n > 1`` are launched right before their parent."""
    request = begin(tracker, slot, task, line, text)
    if slot.ended == task:  # logs that were joined by hand: a number comes twice
        tracker.forget(slot.id)
    if tracker.clears_idle is not False:
        tracker.clear_idle(slot)
    if child:
        request.parent = -1
        tracker.children = True
    elif tracker.children:
        tracker.children = False
        for other in tracker.slots.values():
            if other.request is not None and other.request.parent == -1:
                other.request.parent = task


def timed_prompt(request: Request, ms: float, processed: int, line: int, text: bytes) -> None:
    """Take the prompt's timing line."""
    request.last_line = line
    request.processed_tokens = processed
    request.prompt_ms = ms if 0 <= ms <= LONGEST else None  # inf and nan are printed for nothing processed
    request.marks["timing"] = Mark(line, text)


def timing(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """Take a timing line; those without prefix belong to the header above them."""
    owner = slot if event.slot >= 0 else tracker.timing
    if owner is None or (owner.request is None and event.slot < 0):
        return  # a log cut inside the block
    if event.slot >= 0:
        request = of_event(tracker, event, owner)
    elif owner.request is not None:
        request = owner.request
    if event.message == "timing_prompt":
        timed_prompt(request, event.fields["prompt_ms"], event.fields["n_prompt_processed"], event.line, event.text)
    else:
        request.last_line = event.line
        request.generated_tokens = event.fields["n_gen"]
        if owner.released:
            finish(tracker, owner)


def release(
    tracker: Tracker, request: Request, slot: SlotState, tokens: int, truncated: bool, line: int, text: bytes
) -> None:
    """Handle the release of a slot: up to b6628 the timing lines follow it, later they precede it."""
    request.last_line = line
    request.released_tokens = tokens
    # "truncated" is also said of a reply that stopped at a full context: without a shift, nothing is lost by it
    full = tokens + 1 >= (tracker.session.n_ctx_slot or tokens + 2)
    request.shifted |= truncated and not full
    request.marks["release"] = Mark(line, text)
    slot.released = True
    if request.generated_tokens is not None or request.cancelled or request.error is not None:
        finish(tracker, slot)


def finish(tracker: Tracker, slot: SlotState, lost: bool = False) -> None:
    """Close the request of ``slot``. ``lost``: its end is not in the log."""
    request = slot.request
    if request is None:
        return
    slot.request, slot.released, slot.ended = None, False, request.task
    if lost:
        request.partial = True
    elif request.generated_tokens is None and request.error is None and not request.partial:
        request.cancelled = True  # released without timing lines
    if request.parent == -1:
        request.parent = None
    if tracker.shows_checkpoints:  # else hidden at this level: unknown, not none
        _count_checkpoints(tracker, request, slot)
    _settle(tracker, request, slot)
    tracker.finished.append(request)


def _count_checkpoints(tracker: Tracker, request: Request, slot: SlotState) -> None:
    name = "ckpt_created" if "ckpt_created" in tracker.session.seen else "ckpt_created_swa"
    request.created = (request.created or 0) + tracker.take(name, request.slot, request.task)
    request.tried, request.restored, request.erased = request.tried or 0, request.restored or 0, request.erased or 0
    limit = tracker.session.setting("ctx_checkpoints")
    slot.checkpoints = max(0, slot.checkpoints + request.created - request.erased)
    if limit is not None and limit >= 0:
        slot.checkpoints = min(slot.checkpoints, limit)


def _settle(tracker: Tracker, request: Request, slot: SlotState) -> None:
    session, threads = tracker.session, tracker.threads
    accounting.derive_counts(request)
    if request.restored_from_ram:
        _move(tracker, choosing.settle_swap(request, threads, tracker.ram), request)
    if "slot_file" in request.marks:
        losses.estimate_file(request)
    accounting.common_prefix(request, session, tracker.shows_checkpoints)
    others = [s for s in tracker.slots.values() if s is not slot]
    thread = threads.join(request, others) if request.parent is None else None
    if thread is not None and request.held_thread != thread.id:
        choosing.look_back(request, slot, tracker.ram, thread.total)
    # Content of unknown origin may have been this conversation's: a log cut at its start shows no first request.
    cold = thread is None and request.prompt_tokens is not None
    cold = cold and (request.held_tokens == 0 or request.held_thread is not None)
    request.thread_turn = 0 if thread is None else thread.turns
    accounting.judge(request, thread.total if thread is not None else request.held_tokens, cold)
    losses.settle(tracker, request, slot, thread)
    if request.released_tokens is None or (request.error is not None and "cached" not in request.marks):
        return  # refused before it touched the slot, whatever the release says (0 up to b6628)
    slot.length = request.released_tokens
    if request.error is not None:
        return
    if request.parent is None and (request.prompt_tokens is not None or request.cancelled or request.shifted):
        record = threads.record(request, thread, request.released_tokens)
        request.thread = slot.thread = record.id
        moved = threads.part(record)
        if moved:
            _move(tracker, moved, request)
            slot.thread = request.thread


def _move(tracker: Tracker, judged: list[Moved], current: Request) -> None:
    """Judge requests again, as turns of the conversation that they really belong to.

    The report keeps what it said of those that are final: their hits can no longer be taken back.
    """
    if judged:
        tracker.before_change()
    for moved in judged:
        request, slot = moved.request, tracker.slot(moved.request.slot)
        if slot.thread == request.thread and slot.length == request.released_tokens:
            slot.thread = moved.thread
        request.thread, request.thread_turn, request.held_thread = moved.thread, moved.turn, moved.held_thread
        accounting.judge(request, moved.total or request.held_tokens, cold=not moved.total)
        final = current.index - request.index >= SPAN
        if request is not current and not final and all(request is not waiting for waiting in tracker.finished):
            tracker.revised.append(request)
