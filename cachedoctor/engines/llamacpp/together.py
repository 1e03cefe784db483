"""Takes the events that stand for several lines, with the same result as the lines one by one.

Knows what the groups of the fused pattern mean. Knows no other message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp import choosing, fused, processing, requests
from cachedoctor.model import Check, Mark

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker


def feed(tracker: Tracker, event: Event) -> None:
    """Hand an event to what it stands for."""
    match = event.match
    if match is None:
        return
    last = match.lastindex or 0
    if last >= fused.END:
        shape = 1 if match[fused.END] else 0
    elif last == fused.REST:
        shape = 2 | (match[fused.CACHED_WORD] is None) << 3 | (fused.CREATED in match[fused.REST]) << 4
    elif last == fused.CHECKING:
        shape = 3 | (match[fused.CHECKING] == b"C") << 3
    else:
        shape = 4 | (match[fused.NEW_NAME] is None) << 3 | (match[fused.T_LAST] is None) << 4 | (last > fused.TASK) << 5
    lines = event.whole.split(b"\n")
    if shape not in tracker.shapes:  # the rows of these lines have not been met yet
        tracker.shapes.add(shape)
        for row in tracker.lines_of(lines):
            if row not in tracker.rows:
                tracker.first_sight(row)
    if last >= fused.END:
        _end(tracker, event, match, fused.END, event.task, lines, 0)
    elif last == fused.REST:
        _batches(tracker, event, match, lines)
    elif last == fused.CHECKING:
        _checks(tracker, event, lines)
    else:
        task = _choice(tracker, event, match, lines)
        if last > fused.TASK:
            _end(tracker, event, match, fused.WHOLE, task, lines, 2)


def _choice(tracker: Tracker, event: Event, match: re.Match[bytes], lines: list[bytes]) -> int:
    slot = tracker.slot(event.slot)
    similarity, keep, t_last, raw_task = match.group(fused.SIMILARITY, fused.F_KEEP, fused.T_LAST, fused.TASK)
    task = int(raw_task)
    plain = slot.choice is None and not tracker.watches_ram
    if plain:  # nothing else is known of this choice: what follows would only pass it on
        if slot.request is not None and slot.released:
            requests.finish(tracker, slot)
        tracker.chosen = slot
    elif t_last is None:
        choosing.choose(tracker, slot, event.line, lines[0], float(similarity), float(keep), None)
    else:
        choosing.choose(tracker, slot, event.line, lines[0], None, None, int(t_last))
    tracker.check_restart(event, task, event.seconds)
    slot = tracker.slot(event.slot)
    requests.launch(tracker, slot, task, event.lines[1], lines[1], False)
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
    return task


def _end(
    tracker: Tracker, event: Event, match: re.Match[bytes], first: int, task: int, lines: Sequence[bytes], at: int
) -> None:
    slot = tracker.slot(event.slot)
    header, ms, processed, generated, released, truncated = match.group(
        first, first + 1, first + 2, first + 3, first + 4, first + 5
    )
    if header:
        tracker.timing = slot
        at += 1
    request = slot.request
    if request is None or request.task != task:
        request = requests.begin(tracker, slot, task, event.line, lines[0], partial=True)
    requests.timed_prompt(request, float(ms), int(processed), event.lines[at], lines[at])
    request.generated_tokens = int(generated)
    requests.release(tracker, request, slot, int(released), truncated == b"1", event.lines[-1], lines[-1])


def _batches(tracker: Tracker, event: Event, match: re.Match[bytes], lines: Sequence[bytes]) -> None:
    slot = tracker.slot(event.slot)
    request = processing.first_batch(tracker, slot, event.task, int(match[fused.CACHED]), event.line, lines[0])
    rest = match[fused.REST]
    created = rest.count(fused.CREATED)
    if created:
        request.created = (request.created or 0) + created
        at = rest.rfind(fused.CREATED)
        request.last_line = event.lines[rest.count(b"\n", 0, at)]
        where = fused.READ_CREATED(rest, at + len(fused.CREATED))
        if where is not None:
            processing.hold(slot, int(where[2]), int(where[3]), int(where[1]))


def _checks(tracker: Tracker, event: Event, lines: Sequence[bytes]) -> None:
    request = requests.of_event(tracker, event, tracker.slot(event.slot))
    if "check" not in request.marks:
        request.marks["check"] = Mark(event.line, lines[0])
    found = fused.READ_CHECKS(event.whole)
    request.tried = (request.tried or 0) + len(found)
    request.last_line = event.lines[-1]
    for at, (low, high, threshold) in enumerate(found[: processing.MAX_CHECKS - len(request.checks)]):
        request.checks.append(Check(int(low), int(high), int(threshold), event.lines[at]))
