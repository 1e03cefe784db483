"""Takes the events that stand for several lines, with the same result as the lines one by one.

Knows what the groups of the fused pattern mean. Knows no other message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp import choosing, fused, processing, requests
from cachedoctor.model import Check, Mark

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker


def feed(tracker: Tracker, event: Event) -> None:
    """Hand an event to what it stands for."""
    groups = event.groups
    if groups[fused.RELEASED] is not None:
        shape: tuple[object, ...] = (groups[fused.HEADER],)
        take = _end
    elif groups[fused.TASK] is not None:
        shape = (groups[fused.NEW_NAME], groups[fused.T_LAST] is None)
        take = _choice
    elif groups[fused.CACHED] is not None:
        shape = (groups[fused.CACHED_WORD], fused.CREATED in (groups[fused.REST] or b""), 0)
        take = _batches
    else:
        shape = (groups[fused.CHECKING], 0, 0, 0)
        take = _checks
    if shape not in tracker.shapes:  # the rows of these lines have not been met yet
        tracker.shapes.add(shape)
        for row in tracker.lines_of(event.whole):
            if row not in tracker.rows:
                tracker.first_sight(row)
    take(tracker, event)


def _choice(tracker: Tracker, event: Event) -> None:
    groups, slot = event.groups, tracker.slot(event.slot)
    similarity, keep, t_last = groups[fused.SIMILARITY], groups[fused.F_KEEP], groups[fused.T_LAST]
    if t_last is None:
        choosing.choose(tracker, slot, event.line, event.text, float(similarity or 0), float(keep or 0), None)
    else:
        choosing.choose(tracker, slot, event.line, event.text, None, None, int(t_last))
    task = int(groups[fused.TASK] or 0)
    tracker.check_restart(event, task, event.seconds)
    requests.launch(tracker, tracker.slot(event.slot), task, event.lines[-1], event.last_text, False)


def _batches(tracker: Tracker, event: Event) -> None:
    slot = tracker.slot(event.slot)
    text = event.text
    request = processing.first_batch(tracker, slot, event.task, int(event.groups[fused.CACHED] or 0), event.line, text)
    rest = event.groups[fused.REST]
    if rest:
        created = rest.count(fused.CREATED)
        if created:
            request.created = (request.created or 0) + created
            request.last_line = event.lines[rest[: rest.rfind(fused.CREATED)].count(b"\n")]


def _checks(tracker: Tracker, event: Event) -> None:
    request = requests.of_event(tracker, event, tracker.slot(event.slot))
    if "check" not in request.marks:
        request.marks["check"] = Mark(event.line, event.text)
    found = fused.READ_CHECKS(event.whole)
    request.tried = (request.tried or 0) + len(found)
    request.last_line = event.lines[-1]
    for at, (low, high, threshold) in enumerate(found[: processing.MAX_CHECKS - len(request.checks)]):
        request.checks.append(Check(int(low), int(high), int(threshold), event.lines[at]))


def _end(tracker: Tracker, event: Event) -> None:
    groups, slot = event.groups, tracker.slot(event.slot)
    request = requests.of_event(tracker, event, slot)
    if groups[fused.HEADER]:
        tracker.timing = slot
        start = event.block.find(b"\n", event.start) + 1
        text, line = event.block[start : event.block.find(b"\n", start)], event.lines[1]
    else:
        text, line = event.text, event.line
    requests.timed_prompt(request, float(groups[fused.PROMPT_MS] or 0), int(groups[fused.PROCESSED] or 0), line, text)
    request.generated_tokens = int(groups[fused.GENERATED] or 0)
    tokens, truncated = int(groups[fused.RELEASED] or 0), groups[fused.TRUNCATED] == b"1"
    requests.release(tracker, request, slot, tokens, truncated, event.lines[-1], event.last_text)
