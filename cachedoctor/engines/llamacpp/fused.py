"""Lines that nearly always follow each other, read in one match, with the same calls as the single lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from cachedoctor.engines.catalogue.base import CLOCK, NAME, Event
from cachedoctor.engines.llamacpp.server_run import ServerRun
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Check, Mark
from cachedoctor.model.bounds import MS, SHARE
from cachedoctor.model.observed import MAX_CHECKS, Observed, Progressed

# Places in the groups of a match; the first two are slot and task, from the slot prefix that comes before PATTERN.
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, SAMPLER, TASK = range(2, 8)
"""Groups of a slot choice; the sampler's is empty, and shows only that the line is there."""
CHOICE_TAIL = 8
LAUNCHED = 21
LAUNCH_TAIL = 22
BATCHES_ALONE = 35
CHECKING = 38
END_ALONE = 39
TAIL, OF_END = 13, 8

# Within a tail: prompt length (2 groups), batches (3), end (8).
CONTEXT, PROMPT, BATCHES, END = 0, 1, 2, 5
# Within batches: the word "cached", the count, the further lines.
CACHED, REST = 1, 2
# Within an end: header line, prompt ms, processed, reply ms, generated, reuse of graphs (empty), released, truncated.

# No looser than the rows: what one of them would not believe, must not be believed because of where it stands.
# They have no sign: of the bounds of a number the upper one is left to be asked for.
# What may be missing is a branch, not an optional repeat, which copies all the groups matched so far.
# Nothing that was matched is given back: each repeat ends at a byte that it cannot hold, so that it is possessive.
_COUNT, _LONG = rb"[0-9]{1,10}+", rb"[0-9]{1,15}+"
_FLOAT = rb"[0-9]++\.[0-9]++"
_STAMP = rb"(?>(?:" + CLOCK + rb" )?+(?:[IW] )?+)"
_SAME = _STAMP + rb"slot ++" + NAME + rb"*+: id ++\1 \| task "
_RATE = rb" tokens \( *+" + _FLOAT + rb" ms per token, ++" + _FLOAT + rb" tokens per second\)\n"
_REST = rb"[^\n]*+"


def _batches_fused(task: bytes) -> bytes:
    """The first batch and the lines of later ones; three groups."""
    removed = rb"n_tokens = " + _COUNT + rb", memory_seq_rm \[" + _LONG + rb", end\)"
    further = (
        rb"(?:(?:cached )?" + removed
        + rb"|created context checkpoint " + _COUNT + rb" of " + _COUNT + rb" \([^\n|]*+"
        + rb"|prompt processing " + _REST + rb"|prompt done, " + _REST + rb")(?=\n)"
    )  # fmt: skip
    first = rb"(cached )?n_tokens = (" + _COUNT + rb"), memory_seq_rm \[" + _LONG + rb", end\)"
    return first + rb"((?:\n" + _SAME + task + rb" \| " + further + rb")*+)(?=\n)"


def _end_fused(task: bytes) -> bytes:
    """Timings and release; eight groups."""
    timing = rb"(?:" + _SAME + task + rb" \| |) *+"
    return (
        rb"(\n?)prompt eval time = ++(" + _FLOAT + rb") ms / ++(" + _COUNT + rb")" + _RATE
        + timing + rb"eval time = ++(" + _FLOAT + rb") ms / ++(" + _COUNT + rb")" + _RATE
        + timing + rb"total time = ++" + _FLOAT + rb" ms / ++" + _COUNT + rb" tokens\n"
        + rb"(?:" + _SAME + task + rb" \| ++graphs reused = " + _REST + rb"\n()|)"
        + _SAME + task + rb" \| stop processing: n_tokens = (" + _COUNT + rb"), truncated = ([01])(?=\n)"
    )  # fmt: skip


def _tail_fused(task: bytes) -> bytes:
    """What may follow a launch at once: prompt length, batches, end; 13 groups."""
    same = rb"\n" + _SAME + task + rb" \| "
    context, length = rb"new prompt, n_ctx_slot = (" + _COUNT + rb")", rb"task\.n_tokens = (" + _COUNT + rb")(?=\n)"
    prompt = context + rb", n_keep = " + _LONG + rb", " + length
    return b"".join(rb"(?:" + same + part + rb"|)" for part in (prompt, _batches_fused(task), _end_fused(task)))


_CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_)?sim_best = (" + _FLOAT + rb") \(> " + _FLOAT + rb" thold\), f_keep = ("
    + _FLOAT + rb")|LRU, t_last = (-?" + _LONG + rb"))\n"
    + rb"(?:" + _SAME + rb"-1 \| sampler chain: " + _REST + rb"\n()|)"
    + _SAME + rb"(" + _LONG + rb") \| processing task, is_child = 0(?=\n)" + _tail_fused(rb"\8")
)  # fmt: skip
_LAUNCH = rb"processing task, is_child = (0)(?=\n)" + _tail_fused(rb"\2")
_POSITION = rb"-?" + _LONG
_CHECK = (
    rb"hecking checkpoint with \[" + _POSITION + rb", " + _POSITION + rb"\] against " + _POSITION + rb"\.\.\.(?=\n)"
)
_CHECKS = rb"(C|c)" + _CHECK + rb"(?:\n" + _SAME + rb"\2 \| [Cc]" + _CHECK + rb")*+"

PATTERN = rb"(?:" + b"|".join((_CHOICE, _LAUNCH, _batches_fused(rb"\2"), _CHECKS, _end_fused(rb"\2"))) + rb")"
"""What may follow the slot prefix."""

GROUPS = END_ALONE + OF_END - NEW_NAME
"""Number of its groups."""

CREATED = b"created context checkpoint "
PROGRESS = b"prompt processing"
READ_CREATED = late(rb"\d{1,10} of (\d{1,10}) \(pos_min = (-?\d{1,15}), pos_max = (-?\d{1,15})")
READ_PROGRESS = late(rb"prompt processing( progress|), n_tokens = +(\d{1,15}), [^\n]*?progress = (\d{1,15}\.\d{1,15})")
READ_CHECK = late(rb"with \[(-?\d{1,15}), (-?\d{1,15})\] against (-?\d{1,15})")


Shape = tuple[Any, ...]
"""Which lines took part, and which of their details make another row: the header, a creation, the word of a check."""
_Groups = tuple[bytes | Any, ...]
"""Groups of a match; None for those that took no part."""


class Block(msgspec.Struct, gc=False):
    """Lines that were read in one match."""

    shape: Shape
    groups: _Groups
    last: int
    """Index of the last group that took part."""
    lines: Sequence[bytes]
    """For many batches, the first and the last lines; those between are empty, as nothing cites them."""
    first: int
    """Number of the first line."""
    numbers: Sequence[int]
    """Line numbers, where they do not count up."""
    slot: int
    task: int
    """Task of the launch, if there is one; else as the lines have it."""
    launched: int = -1
    """Index of the launch; -1 when there is none."""
    tail: _Groups = ()
    """Groups of what follows the launch."""

    def number(self, at: int) -> int:
        """Number of the line with this index."""
        return self.numbers[at] if self.numbers else self.first + at

    def mark(self, at: int) -> Mark:
        """The line with this index."""
        return Mark(self.numbers[at] if self.numbers else self.first + at, self.lines[at])


def block_of(event: Event, match: re.Match[bytes]) -> Block:
    """The lines of an event that stands for several."""
    groups, lines, last, launched = match.groups(), event.texts, (match.lastindex or 0) - 1, 0
    slot = int(groups[0])
    if groups[TASK] is not None:
        tail, task = groups[CHOICE_TAIL : CHOICE_TAIL + TAIL], int(groups[TASK])
        launched = 1 if groups[SAMPLER] is None else 2
    elif groups[LAUNCHED] is not None:
        tail, task = groups[LAUNCH_TAIL : LAUNCH_TAIL + TAIL], int(groups[1])
    else:
        created = _creates(groups[BATCHES_ALONE + REST])
        lines = event.whole.split(b"\n") if last == CHECKING else lines  # each of them is kept
        alone = last, groups[END_ALONE], groups[BATCHES_ALONE], created, groups[CHECKING], len(lines) > 1
        return Block(alone, groups, last, lines, event.line, event.lines, slot, int(groups[1]))
    context, _, cached, _, rest, header, end = tail[: END + 2]
    first, batches, several = groups[T_LAST] is None, rest and _creates(rest), len(lines) > 1
    shape = launched > 0, groups[NEW_NAME], first, context is None, cached, batches, header, end is None, several
    return Block(shape, groups, last, lines, event.line, event.lines, slot, task, launched, tail)


def _creates(batches: bytes | None) -> bool:
    """Whether a checkpoint is created between these batches."""
    return batches is not None and batches.find(CREATED) >= 0


def read(run: ServerRun, block: Block) -> None:
    """Take the lines."""
    slot, last, task = run.slots.get(block.slot) or run.slot(block.slot), block.last, block.task
    if block.launched >= 0:
        _launch(run, slot, block)
    elif last >= END_ALONE:
        request = slot.request_of(task) or run.attend(slot, task, block.mark(0))
        _end(run, slot, request, block, block.groups[END_ALONE : END_ALONE + OF_END])
    elif last == CHECKING:
        _checks(run, slot, block)
    else:
        _, cached, rest = block.groups[BATCHES_ALONE : BATCHES_ALONE + 3]
        _batches(run, slot, block, cached, rest, 0, 0)


# ---- what they say


def _launch(run: ServerRun, slot: Slot, block: Block) -> None:
    """Take a launch, the choice before it, and what follows it at once."""
    groups, at = block.groups, block.launched
    if at:
        t_last, mark = groups[T_LAST], block.mark(0)
        if t_last is None:
            similarity, keep = float(groups[SIMILARITY]), float(groups[F_KEEP])
            run.choose(
                slot, mark, "lcp", similarity if similarity <= _WHOLE else None, keep if keep <= _WHOLE else None
            )
        else:
            run.choose(slot, mark, "lru", None, None, int(t_last))
    request = run.launch(slot, block.task, block.mark(at))
    context, prompt, _, cached, rest, *end = block.tail
    if prompt is not None:
        at += 1
        run.fit(slot, int(context))
        request.record_prompt(int(prompt), block.mark(at))
    header, ms, *_, graphs, _, _ = end
    if rest is not None:
        behind = 0 if ms is None else (4 if graphs is None else 5) + bool(header)
        _batches(run, slot, block, cached, rest, at + 1, behind)
    if ms is not None:
        _end(run, slot, request, block, end)


def _end(run: ServerRun, slot: Slot, request: Observed, block: Block, end: Sequence[Any]) -> None:
    """Take the timings, and the release."""
    header, ms, processed, reply_ms, generated, graphs, released, truncated = end
    spent, replied, last = float(ms), float(reply_ms), len(block.lines) - 1
    if header:
        run.timing = slot
    slot.finish(
        request, block.mark(last - (3 if graphs is None else 4)), spent if spent <= _MOST_MS else None, int(processed),
        replied if replied <= _MOST_MS else None, int(generated), block.mark(last), int(released),
        truncated == b"1",
    )  # fmt: skip
    run.close(slot)


def _batches(run: ServerRun, slot: Slot, block: Block, cached: bytes, rest: bytes, at: int, behind: int) -> None:
    """Take the first batch, the line ``at``, and those of later ones; so many lines stand ``behind`` them."""
    if run.first("seq_rm", slot.id, block.task):
        run.batch(slot, block.task, int(cached), block.mark(at))
    if not rest:
        return
    request = slot.open
    if request is not None and request.progress is None and rest.find(PROGRESS) >= 0:
        said = READ_PROGRESS.search(rest)
        if said is not None:
            request.record_progress(Progressed(int(said[2]), float(said[3]), "all" if said[1] else "computed"))
    created = rest.count(CREATED)
    if created:
        where = rest.rfind(CREATED)
        found = READ_CREATED.match(rest, where + _AFTER)  # its size was read when it was met for the first time
        if found is not None:
            line = block.number(len(block.lines) - 1 - behind - rest.count(b"\n", where))
            slot.created(created, int(found[2]), int(found[3]), int(found[1]), line)


_AFTER = len(CREATED)
_MOST_MS, _WHOLE = MS.most, SHARE.most


def _checks(run: ServerRun, slot: Slot, block: Block) -> None:
    request = run.attend(slot, block.task, block.mark(0))
    found = READ_CHECK.findall(b"\n".join(block.lines))  # one in each line
    said = list(map(int, chain.from_iterable(found[:MAX_CHECKS])))
    numbers = map(block.number, range(len(block.lines)))
    checks = list(map(Check, said[::3], said[1::3], said[2::3], numbers, block.lines))
    request.record_checks(checks, len(found), block.mark(0))
    request.extend(block.number(len(block.lines) - 1))
