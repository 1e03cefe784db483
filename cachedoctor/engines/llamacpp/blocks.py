"""Several lines read in one match of the fused pattern: the same calls as the lines one by one.

``selected slot by LCP similarity ... processing task ... stop processing``, a whole request. What is not met every day
is read line by line (``lines.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cachedoctor.engines.catalogue.base import Event, stamp_of
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.life import Life
from cachedoctor.engines.llamacpp.slot import MAX_CHECKS, Slot
from cachedoctor.model import Check, Mark
from cachedoctor.model.bounds import MS, SHARE
from cachedoctor.model.observed import Progressed

_Groups = tuple[bytes | Any, ...]
"""Groups of a match, those that took no part None; the first is the whole match, so that they count as in ``fused``."""


class Block(msgspec.Struct, gc=False):
    """Lines that were read in one match."""

    groups: _Groups
    last: int
    """The last group that took part."""
    lines: list[bytes]
    numbers: Sequence[int]
    """Line numbers."""
    slot: int
    task: int
    """As the first line has it: -1 for a choice."""

    def mark(self, at: int) -> Mark:
        """The line with this index."""
        return Mark(self.numbers[at], self.lines[at])


def block_of(event: Event, match: re.Match[bytes]) -> Block:
    """The lines of an event that stands for several."""
    groups = (b"",) + match.groups()  # noqa: RUF005  # unpacking them takes twice as long, and this is hot
    return Block(groups, match.lastindex or 0, event.whole.split(b"\n"), event.lines, event.slot, event.task)


def launches(block: Block) -> tuple[int, bytes] | None:
    """Task and uptime of the launch among the lines; None when there is none."""
    task = block.groups[fused.TASK]
    if task is not None:
        return int(task), stamp_of(block.lines[_launch_line(block)])
    return (block.task, stamp_of(block.lines[0])) if block.groups[fused.LAUNCHED] is not None else None


def _launch_line(block: Block) -> int:
    """Index of the launch behind a choice."""
    return 2 if fused.SAMPLER in block.lines[1] else 1


def read(life: Life, block: Block) -> None:
    """Take the lines."""
    slot, groups, last = life.slot(block.slot), block.groups, block.last
    if groups[fused.TASK] is not None:
        _choice(life, slot, block)
    elif groups[fused.LAUNCHED] is not None:
        life.launch(slot, block.task, block.mark(0))
        _tail(life, slot, block, fused.LAUNCH_TAIL, block.task, 1)
    elif last >= fused.END_ALONE:
        _end(life, slot, block, fused.END_ALONE, block.task, 0)
    elif last == fused.CHECKING:
        _checks(life, slot, block)
    else:
        _batches(life, slot, block, fused.BATCHES_ALONE, block.task, 0)


# ---- rows behind the lines


def shape(block: Block) -> int:
    """Which lines there are, in which wording: the same shape has the same rows."""
    return _kind_shape(block.groups, block.last) << 1 | (len(block.lines) > 1)


def _kind_shape(groups: _Groups, last: int) -> int:
    if groups[fused.TASK] is not None:
        return _launch_shape(groups, 1, fused.CHOICE_TAIL)
    if groups[fused.LAUNCHED] is not None:
        return _launch_shape(groups, 2, fused.LAUNCH_TAIL)
    if last >= fused.END_ALONE:
        return 3 | bool(groups[fused.END_ALONE]) << 3
    if last == fused.CHECKING:
        return 4 | (groups[fused.CHECKING] == b"C") << 3
    return 5 | _batch_shape(groups, fused.BATCHES_ALONE) << 3


def _launch_shape(groups: _Groups, kind: int, tail: int) -> int:
    found = kind | (groups[fused.NEW_NAME] is None) << 3 | (groups[fused.T_LAST] is None) << 4
    found |= (groups[tail] is None) << 5 | (groups[tail + fused.END + 1] is None) << 6
    if groups[tail + fused.BATCHES + fused.REST] is not None:
        found |= _batch_shape(groups, tail + fused.BATCHES) << 7
    return found | bool(groups[tail + fused.END]) << 10


def _batch_shape(groups: _Groups, first: int) -> int:
    rest = groups[first + fused.REST]
    if rest is None:
        return 0
    return 1 | (groups[first] is None) << 1 | (fused.CREATED in rest) << 2


# ---- what they say


def _choice(life: Life, slot: Slot, block: Block) -> None:
    groups, at = block.groups, _launch_line(block)
    t_last, task = groups[fused.T_LAST], int(groups[fused.TASK])
    if t_last is None:
        similarity, keep = float(groups[fused.SIMILARITY]), float(groups[fused.F_KEEP])
        life.choose(slot, block.mark(0), "lcp", SHARE.of(similarity), SHARE.of(keep))
    else:
        life.choose(slot, block.mark(0), "lru", t_last=int(t_last))
    life.launch(slot, task, block.mark(at))
    if len(block.lines) > at + 1:
        _tail(life, slot, block, fused.CHOICE_TAIL, task, at + 1)


def _tail(life: Life, slot: Slot, block: Block, first: int, task: int, at: int) -> None:
    """Take what follows a launch; ``at`` is the index of the next line."""
    groups = block.groups
    prompt = groups[first + fused.PROMPT]
    if prompt is not None:
        life.prompt(slot, task, int(prompt), int(groups[first + fused.CONTEXT]), block.mark(at))
        at += 1
    rest = groups[first + fused.BATCHES + fused.REST]
    if rest is not None:
        _batches(life, slot, block, first + fused.BATCHES, task, at)
        at += 1 + rest.count(b"\n")
    if groups[first + fused.END + 1] is not None:
        _end(life, slot, block, first + fused.END, task, at)


def _end(life: Life, slot: Slot, block: Block, first: int, task: int, at: int) -> None:
    header, ms, processed, reply_ms, generated, released, truncated = block.groups[first : first + 7]
    if not slot.serves(task):
        life.attend(slot, task, block.mark(0))
    if header:
        life.timing = slot
        at += 1
    slot.timed(MS.of(float(ms)), int(processed), block.mark(at))
    slot.generated(MS.of(float(reply_ms)), int(generated), block.numbers[at])
    if slot.release(int(released), truncated == b"1", block.mark(-1)):
        life.close(slot)


def _batches(life: Life, slot: Slot, block: Block, first: int, task: int, at: int) -> None:
    if life.first("seq_rm", slot.id, task):
        life.batch(slot, task, int(block.groups[first + fused.CACHED]), block.mark(at))
    rest = block.groups[first + fused.REST]
    if rest and slot.waits_for_progress:
        said = fused.READ_PROGRESS(rest)
        if said is not None:
            slot.progress(Progressed(int(said[2]), float(said[3]), "all" if said[1] else "computed"))
    created = rest.count(fused.CREATED)
    if created:
        where = rest.rfind(fused.CREATED)
        found = fused.READ_CREATED(rest, where + _AFTER)  # its size was read when it was met for the first time
        if found is not None:
            line = block.numbers[at + rest.count(b"\n", 0, where)]
            slot.created(created, int(found[2]), int(found[3]), int(found[1]), line)


_AFTER = len(fused.CREATED)


def _checks(life: Life, slot: Slot, block: Block) -> None:
    life.attend(slot, block.task, block.mark(0))
    found = [fused.READ_CHECK(line) for line in block.lines]
    checks = [
        Check(int(low), int(high), int(threshold), block.numbers[at], block.lines[at])
        for at, (low, high, threshold) in enumerate(match.groups() for match in found[:MAX_CHECKS] if match)
    ]
    slot.checked(checks, len(found), block.mark(0))
    slot.at(block.numbers[-1])
