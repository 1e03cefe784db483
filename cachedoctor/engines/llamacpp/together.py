"""Takes the events that stand for several lines, with the same result as the lines one by one.

Knows what the groups of the fused pattern mean. Knows no other message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event, stamp_of
from cachedoctor.engines.llamacpp import choosing, fused, processing, requests
from cachedoctor.engines.llamacpp.slot_state import SlotState
from cachedoctor.model import Check, Mark

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker


def feed(tracker: Tracker, event: Event) -> None:
    """Hand an event to what it stands for; what is not met every day is read line by line."""
    match = event.match
    if match is None:
        return
    last = match.lastindex or 0
    lines = event.whole.split(b"\n")
    shape = _shape(match, last) << 1 | (len(lines) > 1)
    known = shape in tracker.shapes  # else the rows of these lines have not been met yet
    tracker.shapes.add(shape)
    if len(lines) > 1 and (not known or _unusual(tracker, event, match, lines)):
        for single in tracker.singly(event):
            tracker.feed(single)
        return
    if not known:
        for row in tracker.lines_of(lines):
            if row not in tracker.rows:
                tracker.first_sight(row)
    slot = tracker.slot(event.slot)
    if match[fused.TASK] is not None:
        _choice(tracker, event, match, lines)
    elif match[fused.LAUNCHED] is not None:
        tracker.check_restart(event, event.task, event.stamp)
        slot = tracker.slot(event.slot)
        requests.launch(tracker, slot, event.task, event.line, lines[0], False)
        _tail(tracker, slot, event, match, fused.LAUNCH_TAIL, event.task, lines, 1)
    elif last >= fused.END_ALONE:
        _end(tracker, slot, event, match, fused.END_ALONE, event.task, lines, 0)
    elif last == fused.CHECKING:
        _checks(tracker, event, lines)
    else:
        _batches(tracker, slot, event, match, fused.BATCHES_ALONE, event.task, lines, 0)


def _unusual(tracker: Tracker, event: Event, match: re.Match[bytes], lines: list[bytes]) -> bool:
    """Whether lines of this event belong to different lives of the server, or to a request that is not open."""
    if match[fused.TASK] is not None:
        return tracker.restarts(int(match[fused.TASK]), stamp_of(lines[2 if fused.SAMPLER in lines[1] else 1]))
    if match[fused.LAUNCHED] is not None:
        return tracker.restarts(event.task, event.stamp)
    slot = tracker.slot(event.slot)
    return slot.request is None or slot.request.task != event.task


_IN_TAIL = (0, fused.BATCHES + fused.REST, fused.END, fused.END + 1)
_SHAPE_GROUPS = {
    tail: (fused.NEW_NAME, fused.T_LAST, *(tail + offset for offset in _IN_TAIL))
    for tail in (fused.CHOICE_TAIL, fused.LAUNCH_TAIL)
}
_END_GROUPS = {
    first: tuple(range(first, first + 6))
    for first in (fused.CHOICE_TAIL + fused.END, fused.LAUNCH_TAIL + fused.END, fused.END_ALONE)
}


# ---- rows behind the lines


def _shape(match: re.Match[bytes], last: int) -> int:
    """Which lines there are, in which wording: the same shape has the same rows."""
    if match[fused.TASK] is not None:
        return _launch_shape(match, 1, fused.CHOICE_TAIL)
    if match[fused.LAUNCHED] is not None:
        return _launch_shape(match, 2, fused.LAUNCH_TAIL)
    if last >= fused.END_ALONE:
        return 3 | bool(match[fused.END_ALONE]) << 3
    if last == fused.CHECKING:
        return 4 | (match[fused.CHECKING] == b"C") << 3
    return 5 | _batch_shape(match, fused.BATCHES_ALONE) << 3


def _launch_shape(match: re.Match[bytes], kind: int, tail: int) -> int:
    new, t_last, context, rest, header, ms = match.group(*_SHAPE_GROUPS[tail])
    shape = kind | (new is None) << 3 | (t_last is None) << 4 | (context is None) << 5 | (ms is None) << 6
    if rest is not None:
        shape |= _batch_shape(match, tail + fused.BATCHES) << 7
    return shape | bool(header) << 10


def _batch_shape(match: re.Match[bytes], first: int) -> int:
    rest = match[first + fused.REST]
    if rest is None:
        return 0
    return 1 | (match[first] is None) << 1 | (fused.CREATED in rest) << 2


# ---- what they say


def _choice(tracker: Tracker, event: Event, match: re.Match[bytes], lines: list[bytes]) -> None:
    slot = tracker.slot(event.slot)
    similarity, keep, t_last, raw_task = match.group(fused.SIMILARITY, fused.F_KEEP, fused.T_LAST, fused.TASK)
    task, at = int(raw_task), 2 if fused.SAMPLER in lines[1] else 1
    plain = slot.choice is None and slot.used and not tracker.watches_ram
    if plain:  # nothing else is known of this choice: what follows would only pass it on
        choosing.drop_looks(tracker)
        if slot.request is not None and slot.released:
            requests.finish(tracker, slot)
        tracker.chosen = slot
    elif t_last is None:
        choosing.choose(tracker, slot, event.line, lines[0], float(similarity), float(keep), None)
    else:
        choosing.choose(tracker, slot, event.line, lines[0], None, None, int(t_last))
    tracker.launched(task, stamp_of(lines[at]))  # it is no restart, else it were read line by line
    requests.launch(tracker, slot, task, event.lines[at], lines[at], False)
    request = slot.request
    if plain and request is not None:
        request.first_line = event.line
        request.marks["select"] = Mark(event.line, lines[0])
        if t_last is None:
            request.selected_by, request.similarity, request.f_keep = "lcp", float(similarity), float(keep)
        else:
            request.selected_by, request.t_last = "lru", int(t_last)
            if request.t_last == -1:
                request.held_tokens, request.held_thread = 0, None
    if len(lines) > at + 1:
        _tail(tracker, slot, event, match, fused.CHOICE_TAIL, task, lines, at + 1)


def _tail(
    tracker: Tracker,
    slot: SlotState,
    event: Event,
    match: re.Match[bytes],
    first: int,
    task: int,
    lines: list[bytes],
    at: int,
) -> None:
    """Take what follows a launch; ``at`` is the index of the next line."""
    prompt = match[first + fused.PROMPT]
    if prompt is not None:
        processing.prompt_length(
            tracker, slot, task, int(prompt), int(match[first + fused.CONTEXT]), event.lines[at], lines[at]
        )
        at += 1
    rest = match[first + fused.BATCHES + fused.REST]
    if rest is not None:
        _batches(tracker, slot, event, match, first + fused.BATCHES, task, lines, at)
        at += 1 + rest.count(b"\n")
    if match[first + fused.END + 1] is not None:
        _end(tracker, slot, event, match, first + fused.END, task, lines, at)


def _end(
    tracker: Tracker,
    slot: SlotState,
    event: Event,
    match: re.Match[bytes],
    first: int,
    task: int,
    lines: list[bytes],
    at: int,
) -> None:
    header, ms, processed, generated, released, truncated = match.group(*_END_GROUPS[first])
    request = slot.request
    if request is None or request.task != task:
        request = requests.begin(tracker, slot, task, event.line, lines[0], partial=True)
    if header:
        tracker.timing = slot
        at += 1
    requests.timed_prompt(request, float(ms), int(processed), event.lines[at], lines[at])
    request.generated_tokens = int(generated)
    requests.release(tracker, request, slot, int(released), truncated == b"1", event.lines[-1], lines[-1])


def _batches(
    tracker: Tracker,
    slot: SlotState,
    event: Event,
    match: re.Match[bytes],
    first: int,
    task: int,
    lines: list[bytes],
    at: int,
) -> None:
    if tracker.first("seq_rm", slot.id, task):
        processing.first_batch(tracker, slot, task, int(match[first + fused.CACHED]), event.lines[at], lines[at])
    request, rest = slot.request, match[first + fused.REST]
    created = rest.count(fused.CREATED)
    if created and request is not None:
        request.created = (request.created or 0) + created
        if tracker.session.sizes.checkpoint is None:
            size = fused.READ_SIZE(rest, rest.find(fused.CREATED))
            processing.measure(tracker, float(size[1]) if size is not None else None)
        where = rest.rfind(fused.CREATED)
        found = fused.READ_CREATED(rest, where + len(fused.CREATED))
        if found is not None:
            line = event.lines[at + rest.count(b"\n", 0, where)]
            processing.hold(slot, request, line, int(found[2]), int(found[3]), int(found[1]))


def _checks(tracker: Tracker, event: Event, lines: list[bytes]) -> None:
    request = requests.of_event(tracker, event, tracker.slot(event.slot))
    if "check" not in request.marks:
        request.marks["check"] = Mark(event.line, lines[0])
    found = fused.READ_CHECKS(event.whole)
    request.tried = (request.tried or 0) + len(found)
    request.last_line = event.lines[-1]
    for at, (low, high, threshold) in enumerate(found[: processing.MAX_CHECKS - len(request.checks)]):
        request.checks.append(Check(int(low), int(high), int(threshold), event.lines[at], lines[at]))
