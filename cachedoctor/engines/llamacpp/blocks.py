"""Several lines read in one match of the fused pattern: the same calls as the lines one by one.

``selected slot by LCP similarity ... processing task ... stop processing``, a whole request. What is not met every day
is read line by line (``lines.py``).
"""

from __future__ import annotations

import re

from cachedoctor.engines.base import Event, stamp_of
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.life import Life
from cachedoctor.engines.llamacpp.slot import MAX_CHECKS, Slot
from cachedoctor.model import Check, Mark

_Lines = list[bytes]


def unusual(life: Life, event: Event, match: re.Match[bytes], lines: _Lines) -> bool:
    """Whether lines of this event belong to different lives of the server, or to a request that is not open."""
    task = match[fused.TASK]
    if task is not None:
        return life.restarts(int(task), stamp_of(lines[2 if fused.SAMPLER in lines[1] else 1]))
    if match[fused.LAUNCHED] is not None:
        return life.restarts(event.task, event.stamp)
    slot = life.slot(event.slot)
    return slot.open is None or slot.open.task != event.task


def read(life: Life, event: Event, match: re.Match[bytes], lines: _Lines) -> None:
    """Take the lines."""
    slot, last = life.slot(event.slot), match.lastindex or 0
    if match[fused.TASK] is not None:
        _choice(life, slot, event, match, lines)
    elif match[fused.LAUNCHED] is not None:
        life.launched(event.task, event.stamp)
        life.launch(slot, event.task, Mark(event.line, lines[0]))
        _tail(life, slot, event, match, fused.LAUNCH_TAIL, event.task, lines, 1)
    elif last >= fused.END_ALONE:
        _end(life, slot, event, match, fused.END_ALONE, event.task, lines, 0)
    elif last == fused.CHECKING:
        _checks(life, slot, event, lines)
    else:
        _batches(life, slot, event, match, fused.BATCHES_ALONE, event.task, lines, 0)


# ---- rows behind the lines

_IN_TAIL = (0, fused.BATCHES + fused.REST, fused.END, fused.END + 1)
_SHAPE_GROUPS = {
    tail: (fused.NEW_NAME, fused.T_LAST, *(tail + offset for offset in _IN_TAIL))
    for tail in (fused.CHOICE_TAIL, fused.LAUNCH_TAIL)
}
_END_GROUPS = {
    first: tuple(range(first, first + 6))
    for first in (fused.CHOICE_TAIL + fused.END, fused.LAUNCH_TAIL + fused.END, fused.END_ALONE)
}


def shape(match: re.Match[bytes]) -> int:
    """Which lines there are, in which wording: the same shape has the same rows."""
    last = match.lastindex or 0
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
    found = kind | (new is None) << 3 | (t_last is None) << 4 | (context is None) << 5 | (ms is None) << 6
    if rest is not None:
        found |= _batch_shape(match, tail + fused.BATCHES) << 7
    return found | bool(header) << 10


def _batch_shape(match: re.Match[bytes], first: int) -> int:
    rest = match[first + fused.REST]
    if rest is None:
        return 0
    return 1 | (match[first] is None) << 1 | (fused.CREATED in rest) << 2


# ---- what they say


def _choice(
    life: Life, slot: Slot, event: Event, match: re.Match[bytes], lines: _Lines
) -> None:
    similarity, keep, t_last, raw_task = match.group(fused.SIMILARITY, fused.F_KEEP, fused.T_LAST, fused.TASK)
    task, at = int(raw_task), 2 if fused.SAMPLER in lines[1] else 1
    mark = Mark(event.line, lines[0])
    if t_last is None:
        life.choose(slot, mark, "lcp", float(similarity), float(keep))
    else:
        life.choose(slot, mark, "lru", t_last=int(t_last))
    life.launched(task, stamp_of(lines[at]))  # it is no restart, else it were read line by line
    life.launch(slot, task, Mark(event.lines[at], lines[at]))
    if len(lines) > at + 1:
        _tail(life, slot, event, match, fused.CHOICE_TAIL, task, lines, at + 1)


def _tail(
    life: Life,
    slot: Slot,
    event: Event,
    match: re.Match[bytes],
    first: int,
    task: int,
    lines: _Lines,
    at: int,
) -> None:
    """Take what follows a launch; ``at`` is the index of the next line."""
    prompt = match[first + fused.PROMPT]
    if prompt is not None:
        context = int(match[first + fused.CONTEXT])
        life.prompt(slot, task, int(prompt), context, Mark(event.lines[at], lines[at]))
        at += 1
    rest = match[first + fused.BATCHES + fused.REST]
    if rest is not None:
        _batches(life, slot, event, match, first + fused.BATCHES, task, lines, at)
        at += 1 + rest.count(b"\n")
    if match[first + fused.END + 1] is not None:
        _end(life, slot, event, match, first + fused.END, task, lines, at)


def _end(
    life: Life, slot: Slot, event: Event, match: re.Match[bytes], first: int, task: int, lines: _Lines, at: int
) -> None:
    header, ms, processed, generated, released, truncated = match.group(*_END_GROUPS[first])
    if slot.open is None or slot.open.task != task:
        life.attend(slot, task, Mark(event.line, lines[0]))
    if header:
        life.timing = slot
        at += 1
    slot.timed(float(ms), int(processed), Mark(event.lines[at], lines[at]))
    slot.generated(int(generated), event.lines[at])
    if slot.release(int(released), truncated == b"1", Mark(event.lines[-1], lines[-1])):
        life.close(slot)


def _batches(
    life: Life,
    slot: Slot,
    event: Event,
    match: re.Match[bytes],
    first: int,
    task: int,
    lines: _Lines,
    at: int,
) -> None:
    if life.first("seq_rm", slot.id, task):
        life.batch(slot, task, int(match[first + fused.CACHED]), Mark(event.lines[at], lines[at]))
    rest = match[first + fused.REST]
    created = rest.count(fused.CREATED)
    if created:
        where = rest.rfind(fused.CREATED)
        size, found = fused.READ_SIZE(rest, rest.find(fused.CREATED)), fused.READ_CREATED(rest, where + _AFTER)
        if life.session.sizes.checkpoint is None and size is not None:
            life.measure_checkpoint(float(size[1]))
        if found is not None:
            line = event.lines[at + rest.count(b"\n", 0, where)]
            slot.created(created, int(found[2]), int(found[3]), int(found[1]), line)


_AFTER = len(fused.CREATED)


def _checks(life: Life, slot: Slot, event: Event, lines: _Lines) -> None:
    life.attend(slot, event.task, Mark(event.line, lines[0]))
    found = fused.READ_CHECKS(event.whole)
    checks = [
        Check(int(low), int(high), int(threshold), event.lines[at], lines[at])
        for at, (low, high, threshold) in enumerate(found[:MAX_CHECKS])
    ]
    slot.checked(checks, len(found), Mark(event.line, lines[0]))
    slot.at(event.lines[-1])
