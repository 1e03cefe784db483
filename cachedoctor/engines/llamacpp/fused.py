"""Reads lines that nearly always follow each other in one match, with the same calls as for single lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from cachedoctor.engines.catalogue.base import CLOCK, Event, stamp_of, value_of
from cachedoctor.engines.llamacpp.server_run import ServerRun
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Check, Mark
from cachedoctor.model.bounds import MS, SHARE
from cachedoctor.model.observed import MAX_CHECKS, Observed, Progressed

# Places in the groups of a match; the first two are slot and task, from the slot prefix that comes before PATTERN.
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, SAMPLER, STAMP, TASK = range(2, 9)
"""Groups of a slot choice and of the launch below it; the sampler's is empty, and shows only that the line is there."""
LAUNCHED = 9
CONTEXT, PROMPT = 10, 11
CHECKED, END = 12, 17
"""After a launch: lines of a search for a checkpoint, and what came of it; the word "cached", the count, the further
lines; and the end as ``_end_fused`` has it."""
BATCHES_ALONE, END_ALONE, CHECKING = 28, 32, 43
REST = 2
"""Of batches."""
GRAPHS, IDLE, PATH, OF_END = 5, 8, 9, 11
"""Groups of an end: the empty ones of lines about graphs and idle slots, the path of an answer, and their number."""

# No looser than the rows: what one of them would not believe, must not be believed because of where it stands.
# They have no sign: of the bounds of a number the upper one is left to be asked for.
# What may be missing is a branch, not an optional repeat, which copies all the groups matched so far.
# Nothing that was matched is given back: each repeat ends at a byte that it cannot hold, so that it is possessive.
_COUNT, _LONG = rb"[0-9]{1,10}+", rb"[0-9]{1,15}+"
_FLOAT = rb"[0-9]++\.[0-9]++"
_STAMP = rb"(?>(?:" + CLOCK + rb" )?+(?:[IW] )?+)"
_NAME = rb"[;-{!-9]"
"""A byte of a function name, as in ``NAME`` but only ASCII: letters are found in the first range."""
_LINE = rb"slot ++" + _NAME + rb"*+: id ++\1 \| task "
_SAME = _STAMP + _LINE
_STAMPED = rb"(?:(" + CLOCK + rb") |)(?:[IW] )?+" + _LINE
_RATE = rb" tokens \( *+" + _FLOAT + rb" ms per token, ++" + _FLOAT + rb" tokens per second\)\n"
_REST = rb"[^\n]*+"


def _batches_fused(task: bytes) -> bytes:
    """The first batch and the lines of later ones; three groups."""
    removed = rb"n_tokens = " + _COUNT + rb", memory_seq_rm \[" + _LONG + rb", end\)"
    further = (
        rb"(?:(?:cached )?" + removed
        + rb"|created context checkpoint " + _COUNT + rb" of " + _COUNT + rb" \([ -{]*+"
        + rb"|prompt processing " + _REST + rb"|prompt done, " + _REST + rb")(?=\n)"
    )  # fmt: skip
    first = rb"(cached |)n_tokens = (" + _COUNT + rb"), memory_seq_rm \[" + _LONG + rb", end\)"
    return first + rb"((?:\n" + _SAME + task + rb" \| " + further + rb")*+)(?=\n)"


_SERVER = rb"\n" + _STAMP + rb"srv ++" + _NAME + rb"*+: "
_ANSWER = (
    rb"(?:" + _SERVER + rb"all slots are idle(?=\n)()|)"
    + rb"(?:" + _SERVER + rb"done request: POST ([!-~]++) ([!-~]++) [0-9]{1,15}+(?=\n)|)"
)  # fmt: skip
"""What the server says where it has answered; three groups."""


def _end_fused(task: bytes) -> bytes:
    """Timings, release and answer; eleven groups."""
    timing = rb"(?:" + _SAME + task + rb" \| |) *+"
    return (
        rb"(\n?)prompt eval time = ++(" + _FLOAT + rb") ms / ++(" + _COUNT + rb")" + _RATE
        + timing + rb"eval time = ++(" + _FLOAT + rb") ms / ++(" + _COUNT + rb")" + _RATE
        + timing + rb"total time = ++" + _FLOAT + rb" ms / ++" + _COUNT + rb" tokens\n"
        + rb"(?:" + _SAME + task + rb" \| ++graphs reused = " + _REST + rb"\n()|)"
        + _SAME + task + rb" \| stop processing: n_tokens = (" + _COUNT + rb"), truncated = ([01])(?=\n)" + _ANSWER
    )  # fmt: skip


_TASK = rb"(?(9)\9|\2)"
"""The task of the launch: below a choice it is in a line of its own."""
_NEXT = rb"\n" + _SAME + _TASK + rb" \| "
_CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_|)sim_best = (" + _FLOAT + rb") \(> " + _FLOAT + rb" thold\), f_keep = ("
    + _FLOAT + rb")|LRU, t_last = (-?" + _LONG + rb"))\n"
    + rb"(?:" + _SAME + rb"-1 \| sampler chain: " + _REST + rb"\n()|)"
    + _STAMPED + rb"(" + _LONG + rb") \| "
)  # fmt: skip
_PROMPT = (
    rb"new prompt, n_ctx_slot = (" + _COUNT + rb"), n_keep = " + _LONG + rb", task\.n_tokens = (" + _COUNT + rb")(?=\n)"
)
_POSITION = rb"-?" + _LONG
_CHECK = (
    rb"[Cc]hecking checkpoint with \[" + _POSITION + rb", " + _POSITION + rb"\] against " + _POSITION
    + rb"\.\.\.(?=\n)"
)  # fmt: skip
_OUTCOME = (
    rb"(restored context checkpoint \(pos_min = " + _POSITION + rb", pos_max = " + _POSITION
    + rb", n_tokens = " + _COUNT + rb", n_past = " + _COUNT + rb", size = " + _FLOAT + rb" MiB\)"
    + rb"|forcing full prompt re-processing due to lack of cache data"
    + rb" \(likely due to SWA or hybrid/recurrent memory, see [!-(*-~]*+\))(?=\n)"
)  # fmt: skip
"""What came of a search for a checkpoint; one group."""


def _checks_fused(task: bytes) -> bytes:
    """Lines of a search for a checkpoint; one group."""
    return rb"(" + _CHECK + rb"(?:\n" + _SAME + task + rb" \| " + _CHECK + rb")*+)"


_PARTS = _PROMPT, _checks_fused(_TASK), _OUTCOME, _batches_fused(_TASK), _end_fused(_TASK)
_LAUNCH = (
    rb"(?:"
    + _CHOICE
    + rb"|)processing task, is_child = (0)(?=\n)"
    + b"".join(rb"(?:" + _NEXT + part + rb"|)" for part in _PARTS)
)

_ALONE = (
    rb"(?:" + _batches_fused(rb"\2") + rb"(?:\n" + _SAME + rb"\2 \| |())|)(?(32)|" + _end_fused(rb"\2") + rb")"
)  # fmt: skip
"""Batches, an end, or both: an empty group shows that batches are not followed by an end."""

PATTERN = rb"(?:" + b"|".join((_LAUNCH, _ALONE, _checks_fused(rb"\2"))) + rb")"
"""What may follow the slot prefix."""

GROUPS = CHECKING + 1 - NEW_NAME
"""Number of its groups."""

CREATED = b"created context checkpoint "
PROGRESS = b"prompt processing"
READ_CREATED = late(rb"\d{1,10} of (\d{1,10}) \(pos_min = (-?\d{1,15}), pos_max = (-?\d{1,15})")
READ_PROGRESS = late(rb"prompt processing( progress|), n_tokens = +(\d{1,15}), [^\n]*?progress = (\d{1,15}\.\d{1,15})")
READ_CHECK = late(rb"with \[(-?\d{1,15}), (-?\d{1,15})\] against (-?\d{1,15})")
READ_RESTORED = late(
    rb"restored context checkpoint \(pos_min = (-?\d{1,15}), pos_max = (-?\d{1,15}), n_tokens = \d{1,10}, "
    rb"n_past = (\d{1,10}), size = ([\d.]+)"
)


Shape = tuple[Any, ...]
"""Which lines took part, and which of their details make another row: the header, a creation, the word of a check."""
Groups = tuple[Any, ...]
"""Groups of a match; None for those that took no part."""


Launch = tuple[Shape, int, int, bytes]
"""Shape of lines with a launch, its task, the index of its line (after those of a choice), and the stamp of it."""


def launch_of(groups: Groups, lines: Sequence[bytes]) -> Launch | None:
    """The launch in lines with these groups; None if they contain none."""
    if groups[LAUNCHED] is None:
        return None
    name, _, _, t_last, sampler, stamp, task, _, context, _, checks, outcome, cached, _, rest, header = groups[
        NEW_NAME : END + 1
    ]
    shape = (
        name, t_last is None, task is None, context is None, checks and checks[:1], outcome and outcome[:1], cached,
        rest and _creates(rest), header,
    )  # fmt: skip
    if task is None:
        return shape, int(groups[1]), 0, stamp_of(lines[0])
    return shape, int(task), 1 if sampler is None else 2, stamp or b""


def shape_of(groups: Groups, lines: int) -> Shape:
    """The shape of this number of lines without a launch, by their groups."""
    created, checks = _creates(groups[BATCHES_ALONE + REST]), groups[CHECKING]
    return groups[END_ALONE], groups[BATCHES_ALONE], created, checks and checks[:1], lines > 1


def _creates(batches: bytes | None) -> bool:
    """Whether a checkpoint is created between these batches."""
    return batches is not None and batches.find(CREATED) >= 0


def read(run: ServerRun, event: Event, groups: Groups) -> None:
    """Process the lines without a launch."""
    slot, task = run.slot(int(groups[0])), int(groups[1])
    if groups[CHECKING] is not None:
        _checks(run, slot, task, event, groups[CHECKING], 0)
        return
    _, cached, rest, _, *end = groups[BATCHES_ALONE : END_ALONE + OF_END]
    if cached is not None:
        _batches(run, slot, task, event, cached, rest, 0, _lines_of(end))
    if end[0] is not None:
        _end(run, slot, slot.request_of(task) or run.attend(slot, task, event.mark(0)), event, end)


# ---- what they say


def read_launch(run: ServerRun, event: Event, groups: Groups, task: int, at: int) -> None:
    """Process the launch of a task (line ``at``), the choice before it, and the lines directly after it."""
    slot = run.slot(int(groups[0]))
    if at:
        _choose(run, slot, event.mark(0), groups)
    request = run.launch(slot, task, event.mark(at))
    context, prompt, checks, outcome, _, cached, rest, *end = groups[CONTEXT : END + OF_END]
    if prompt is not None:
        at += 1
        run.fit(slot, int(context))
        request.record_prompt(int(prompt), event.mark(at))
    if checks is not None:
        at += _checks(run, slot, task, event, checks, at + 1)
    if outcome is not None:
        at += 1
        _found(run, slot, request, outcome, event.mark(at))
    if cached is not None:
        _batches(run, slot, task, event, cached, rest, at + 1, _lines_of(end))
    if end[0] is not None:
        _end(run, slot, request, event, end)


def _lines_of(end: Sequence[Any]) -> int:
    """How many lines an end has: a header, three timings, the graphs, the release, the answer."""
    header, graphs = end[0], end[GRAPHS]
    return 0 if header is None else (4 if graphs is None else 5) + bool(header) + _lines_of_answer(end)


def _lines_of_answer(end: Sequence[Any]) -> int:
    return (end[IDLE] is not None) + (end[PATH] is not None)


def _choose(run: ServerRun, slot: Slot, mark: Mark, groups: Groups) -> None:
    """Take the choice of a slot."""
    t_last = groups[T_LAST]
    if t_last is None:
        similarity, keep = float(groups[SIMILARITY]), float(groups[F_KEEP])
        run.choose(slot, mark, "lcp", similarity if similarity <= _WHOLE else None, keep if keep <= _WHOLE else None)
    else:
        run.choose(slot, mark, "lru", None, None, int(t_last))


def _end(run: ServerRun, slot: Slot, request: Observed, event: Event, end: Sequence[Any]) -> None:
    """Take the timings, the release, and the answer to the client."""
    header, ms, processed, reply_ms, generated, graphs, released, truncated, _, path, address = end
    spent, replied, last = float(ms), float(reply_ms), len(event.texts) - 1 - _lines_of_answer(end)
    if header:
        run.timing = slot
    slot.finish(
        request, event.mark(last - (3 if graphs is None else 4)), spent if spent <= _MOST_MS else None, int(processed),
        replied if replied <= _MOST_MS else None, int(generated), event.mark(last), int(released),
        truncated == b"1",
    )  # fmt: skip
    run.close(slot)
    if path is not None and run.clients is not None:
        run.clients.answered("POST", path.decode(), address.decode())


def _batches(
    run: ServerRun, slot: Slot, task: int, event: Event, cached: bytes, rest: bytes, at: int, behind: int
) -> None:
    """Take the first batch, the line ``at``, and those of later ones; so many lines stand ``behind`` them."""
    if run.first("seq_rm", slot.id, task):
        run.batch(slot, task, int(cached), event.mark(at))
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
            line = event.numbers[len(event.texts) - 1 - behind - rest.count(b"\n", where)]
            slot.created(created, int(found[2]), int(found[3]), int(found[1]), line)


_AFTER = len(CREATED)
_MOST_MS, _WHOLE = MS.most, SHARE.most


def _checks(run: ServerRun, slot: Slot, task: int, event: Event, looked: bytes, at: int) -> int:
    """Take the lines of a search for a checkpoint, from the line ``at`` on; returns how many there are."""
    event.texts = event.whole.split(b"\n")  # each of them is kept
    request = run.attend(slot, task, event.mark(at))
    found = READ_CHECK.findall(looked)  # one in each line
    lines, numbers = event.texts[at:], event.numbers[at : at + len(found)]
    said = list(map(int, chain.from_iterable(found[:MAX_CHECKS])))
    checks = list(map(Check, said[::3], said[1::3], said[2::3], numbers, lines))
    request.record_checks(checks, len(found), event.mark(at))
    request.extend(numbers[-1])
    return len(found)


def _found(run: ServerRun, slot: Slot, request: Observed, outcome: bytes, mark: Mark) -> None:
    """Take the line that says what came of a search for a checkpoint."""
    request.extend(mark.line)
    restored = READ_RESTORED.match(outcome)
    if restored is None:
        slot.force(mark)
        return
    run.measure_checkpoint(value_of("mib", restored[4]))
    high = int(restored[2])
    request.record_restore(int(restored[1]), high, int(restored[3]), mark, slot.stale(high))
