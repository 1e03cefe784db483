"""Lines from the prompt to the release: reuse, checkpoints, failures, context shift.

Knows these lines' meaning. Knows neither the choice of the slot nor the timings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp import losses, requests
from cachedoctor.engines.llamacpp.overlong import parse_error
from cachedoctor.engines.llamacpp.slot_state import MAX_MIB, SlotState
from cachedoctor.model import Check, Mark, Request

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker

MAX_POSITIONS = 32
"""Positions of checkpoints remembered per slot; builds without check lines hold 8."""
MAX_CHECKS = 256
"""Checked checkpoints kept per request; a list holds 32 by default."""
_MAX_TEXT = 2000
"""Characters kept of an ``old:`` / ``new:`` line."""


def prompt_length(
    tracker: Tracker, slot: SlotState, task: int, tokens: int, context: int, line: int, text: bytes
) -> None:
    """Take the length of a prompt and the context of its slot."""
    request = slot.request
    if request is None or request.task != task:
        request = requests.begin(tracker, slot, task, line, text, partial=True)
    request.last_line = line
    request.prompt_tokens = tokens
    request.marks["prompt"] = Mark(line, text)
    if tracker.session.n_ctx_slot is None:
        tracker.session.n_ctx_slot = context


def _new_prompt(tracker: Tracker, event: Event, slot: SlotState) -> None:
    fields = event.fields
    prompt_length(tracker, slot, event.task, fields["n_prompt_tokens"], fields["n_ctx_slot"], event.line, event.text)


def _input_truncated(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """Up to b6628 an over-long prompt is cut in the middle; what is left counts."""
    request = requests.of_event(tracker, event, slot)
    request.prompt_tokens = event.fields["n_prompt_tokens"]
    request.cut_prompt = True
    request.marks["cut"] = Mark(event.line, event.text)


def _init_sampler(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    if request.prompt_tokens is None:
        request.prompt_tokens = event.fields["n_total"]


def _window(tracker: Tracker, event: Event) -> None:
    window = event.fields.get("n_swa", tracker.session.window)
    if window != tracker.session.window:
        tracker.before_change()
        tracker.session.window = window


def _n_past(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """``n_past = LCP, slot.prompt.tokens.size() = held``: printed when the memory may be unable to go back."""
    request = requests.of_event(tracker, event, slot)
    request.common_prefix_tokens, request.lcp_exact = event.fields["n_past"], True
    mark = request.marks["n_past"] = Mark(event.line, event.text)
    losses.printed_length(tracker, request, event.fields["n_cache_tokens"], mark)
    request.held_tokens = event.fields["n_cache_tokens"]
    request.oldest_position = event.fields["pos_min"]
    _window(tracker, event)


def first_batch(tracker: Tracker, slot: SlotState, task: int, cached: int, line: int, text: bytes) -> None:
    """Take what was reused from the first batch of a request; the line is repeated for every batch."""
    request = slot.request
    if request is None or request.task != task:
        request = requests.begin(tracker, slot, task, line, text, partial=True)
        request.marks["cached"] = Mark(line, text)  # the log begins inside the request: this may be any of its batches
    elif "cached" not in request.marks:
        request.last_line = line
        request.marks["cached"] = Mark(line, text)
        request.cached_tokens = cached


def _seq_rm(tracker: Tracker, event: Event, slot: SlotState) -> None:
    fields = event.fields
    first_batch(
        tracker,
        slot,
        event.task,
        fields["n_tokens"] if "n_tokens" in fields else fields["n_past"],
        event.line,
        event.text,
    )


def _truncate_failed(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    if request.truncate_failed_at is None:
        request.truncate_failed_at = event.fields.get("p0", event.fields.get("n_past"))
        request.cached_tokens = 0
        request.marks["failed"] = Mark(event.line, event.text)


def _forced(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    request.forced = True
    if not slot.positions_known:
        slot.positions, slot.positions_known = [], True  # every checkpoint is erased
    request.marks["forced"] = Mark(event.line, event.text)


def _checked(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    request.tried = (request.tried or 0) + 1
    if len(request.checks) < MAX_CHECKS:
        fields = event.fields
        request.checks.append(
            Check(fields["pos_min"], fields["pos_max"], fields["pos_min_thold"], event.line, event.text)
        )
    if "check" not in request.marks:
        request.marks["check"] = Mark(event.line, event.text)


def measure(tracker: Tracker, size: float | None) -> None:
    """Keep the size (MiB) of a checkpoint if it is the largest read; of those created only the first one is."""
    if size is not None and (tracker.session.sizes.checkpoint or 0.0) < size < MAX_MIB:
        tracker.session.sizes.checkpoint = size


def _restored(tracker: Tracker, event: Event, slot: SlotState) -> None:
    measure(tracker, event.fields.get("size"))
    request = requests.of_event(tracker, event, slot)
    request.restored = (request.restored or 0) + 1
    request.restored_at = (event.fields["pos_min"], event.fields["pos_max"])
    request.marks["restored"] = Mark(event.line, event.text)
    losses.restored(request, slot, event)


def hold(slot: SlotState, request: Request, line: int, pos_min: int, pos_max: int, limit: int) -> None:
    """Remember where the last checkpoint of a request lies; the list of the server holds ``limit`` of them."""
    request.last_line = line
    slot.limit = limit
    if slot.held == request.index:
        slot.positions = slot.positions[:-1]
    slot.held = request.index
    kept = min(limit, MAX_POSITIONS) - 1
    slot.positions = [*(slot.positions[-kept:] if kept > 0 else ()), (pos_min, pos_max)]


def _created(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """Take where it lies; how many there are is counted when the request ends."""
    if tracker.session.sizes.checkpoint is None:
        measure(tracker, event.fields.get("size"))
    request = slot.request
    if request is None or request.task != event.task:
        request = requests.of_event(tracker, event, slot)
    # up to b6628 "total = n" says what is left of the list: it drops its oldest, and after a force all, without a word
    limit = event.fields["max" if event.message == "ckpt_created" else "total"]
    hold(slot, request, event.line, event.fields["pos_min"], event.fields["pos_max"], limit)


def _erased(tracker: Tracker, event: Event, slot: SlotState) -> None:
    _window(tracker, event)
    measure(tracker, event.fields.get("size"))
    if slot.request is not None:
        slot.request.erased = (slot.request.erased or 0) + 1
        slot.request.marks["erased"] = Mark(event.line, event.text)
    if event.message == "ckpt_erased":
        _forget(slot, event)
    elif slot.request is not None and "cached" not in slot.request.marks:
        # the numbers of these lines are wrong; in front of the prompt it is the newest, behind it the oldest
        slot.positions = slot.positions[:-1]


def _forget(slot: SlotState, event: Event) -> None:
    at = (event.fields["pos_min"], event.fields["pos_max"])
    slot.positions = [held for held in slot.positions if held != at]


def _dropped(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """A checkpoint left a full list, or was too close to another."""
    measure(tracker, event.fields.get("size"))
    slot.checkpoints = max(0, slot.checkpoints - 1)
    _forget(slot, event)
    losses.drop(slot, event)
    if slot.request is not None:
        slot.request.marks["dropped"] = Mark(event.line, event.text)


def _chunk(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    request.reused_chunks += event.fields["n_match"]


def _diff(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    text = event.fields.get("str", "")[:_MAX_TEXT]
    if event.message == "diff_old":
        request.old_text = text
        request.marks["old"] = Mark(event.line, event.text[:_MAX_TEXT])
    else:
        request.new_text = text
        request.marks["new"] = Mark(event.line, event.text[:_MAX_TEXT])


def _released(tracker: Tracker, event: Event, slot: SlotState) -> None:
    tokens = event.fields.get("n_tokens", event.fields.get("n_past", 0))
    request = requests.of_event(tracker, event, slot)
    requests.release(tracker, request, slot, tokens, bool(event.fields["truncated"]), event.line, event.text)


def _shifted(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = requests.of_event(tracker, event, slot)
    request.shifted = True
    request.marks["shift"] = Mark(event.line, event.text)


def _find(tracker: Tracker, task: int) -> Request | None:
    return next((s.request for s in tracker.slots.values() if s.request and s.request.task == task), None)


def _cancel(tracker: Tracker, event: Event, slot: SlotState) -> None:
    request = _find(tracker, event.fields["id_task"])
    if request is not None and request.error is None:
        request.cancelled = True
        request.last_line = event.line


def _error(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """An error is sent for a task; an over-long prompt may never have reached a slot."""
    task = event.fields["id_task"]
    request = _find(tracker, task)
    if request is None:
        free = next((s for s in tracker.slots.values() if s.request is None), None) or tracker.slot(len(tracker.slots))
        length, thread = free.length, free.thread
        request = requests.begin(tracker, free, task, event.line, event.text)
        parse_error(request, event)
        requests.finish(tracker, free)
        free.length, free.thread = length, thread
        return
    parse_error(request, event)


def _images(tracker: Tracker, event: Event, slot: SlotState) -> None:
    if slot.request is not None:
        slot.request.images = True


HANDLERS: dict[str, Callable[[Tracker, Event, SlotState], None]] = {
    "new_prompt": _new_prompt,
    "input_truncated": _input_truncated,
    "init_sampler": _init_sampler,
    "npast_posmin": _n_past,
    "seq_rm": _seq_rm,
    "truncate_fail": _truncate_failed,
    "force_full": _forced,
    "ckpt_check": _checked,
    "ckpt_restored": _restored,
    "ckpt_restored_swa": _restored,
    "ckpt_created": _created,
    "ckpt_created_swa": _created,
    "ckpt_erased": _erased,
    "ckpt_erased_swa": _erased,
    "ckpt_erase_old": _dropped,
    "ckpt_erase_close": _dropped,
    "cache_reuse_chunk": _chunk,
    "diff_old": _diff,
    "diff_new": _diff,
    "release": _released,
    "ctx_shift": _shifted,
    "cancel": _cancel,
    "task_error": _error,
    "mtmd_encode": _images,
    "img_processing": _images,
}
