"""Edit script between two token sequences: what stayed, was removed, added or moved."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Literal, TypeVar

import msgspec

from cachedoctor.model import Edit, Op
from cachedoctor.prompts.align.anchors import Gap, IdPair, Run, backward, find_moves, forward, split


def equal_runs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Run]:
    """Return the runs that a cheapest edit script keeps, in order; of several such scripts, always the same."""
    front = forward(a, b, 0, 0, min(len(a), len(b)))
    back = backward(a, b, len(a), len(b), min(len(a), len(b)) - front)
    end_a, end_b = len(a) - back, len(b) - back
    runs = [Run(front + i, front + j, 1) for i, j in _pairs(a[front:end_a], b[front:end_b])]
    return _joined([Run(0, 0, front), *reversed(runs), Run(end_a, end_b, back)])


def _pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Walk back through the table and yield the places of equal tokens, from the last."""
    table = _table(a, b)
    i, j = len(a), len(b)
    while i and j:
        bit = 1 << i - 1
        if table[j - 1][0] & bit:  # a[i - 1] goes
            i -= 1
        elif j > 1 and table[j - 2][1] & bit:  # b[j - 1] is new
            j -= 1
        else:
            i, j = i - 1, j - 1
            if a[i] == b[j]:
                yield i, j


def _table(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return per token of B where the distance grows by one from each token of A to the next, and where it shrinks."""
    places: dict[Hashable, int] = {}
    for at, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << at
    every = (1 << len(a)) - 1
    grows, shrinks = every, 0
    table = []
    for token in b:
        same = places.get(token, 0)
        diagonal = (((same & grows) + grows) ^ grows) | same | shrinks
        more, less = shrinks | ~(diagonal | grows), diagonal & grows
        more, less = more << 1 | 1, less << 1
        grows, shrinks = (less | ~(diagonal | more)) & every, more & diagonal & every
        table.append((grows, shrinks))
    return table


def _joined(runs: list[Run]) -> list[Run]:
    """Join runs that touch in both sequences, and leave empty ones out."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last is not None and (last.i + last.n, last.j + last.n) == (run.i, run.j):
            joined[-1] = Run(last.i, last.j, last.n + run.n)
        elif run.n:
            joined.append(run)
    return joined


Pattern = Literal[
    "equal", "appended", "front-dropped", "tail-replaced", "inserted-block", "removed-block", "scattered", "unrelated"
]
T = TypeVar("T")

SMALL = 5_000
"""Tokens on the longer side of the largest gap that is aligned exactly (20 ms and 6 MB at this size)."""
_LONG_GRAM, _SHORT_GRAMS = 8, (3, 1)
_REAL_SHARE = 0.1
"""Minimum common share of two texts; less is chance, because words such as "the" occur everywhere."""
_BLOCK_TO_SEAM = 32
"""A block replaced by this many times fewer tokens and followed by equal tokens counts as removed."""


class Summary(msgspec.Struct):
    """Numbers and pattern of an edit script."""

    equal: int
    """Tokens in both, in order."""
    inserted: int
    """Tokens only in B, including those that replace others."""
    deleted: int
    """Tokens only in A."""
    moved: int
    """Tokens in both, elsewhere."""
    pattern: Pattern
    """``front-dropped``: the start of A is gone. ``inserted-block`` and ``removed-block``: one block, anywhere else,
    but for a token or two at the seam.
    ``tail-replaced``: nothing in common after a common start. ``unrelated``: not even that. ``scattered``: the rest,
    one replaced place included."""
    at: int
    """Tokens before the first change."""
    block: int
    """Tokens of the block that was added, removed or appended; for ``tail-replaced`` the removed tokens of A."""
    appended: int
    """New tokens at the end of B, whatever else changed."""
    places: int
    """Total changes; adjacent ones with no equal tokens in between count as one."""


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Tokens equal from the start."""
    return forward(a, b, 0, 0, min(len(a), len(b)))


def common_suffix(a: Sequence[object], b: Sequence[object], limit: int) -> int:
    """Tokens equal from the end, at most ``limit`` (so that a prefix is not counted again)."""
    return backward(a, b, len(a), len(b), min(len(a), len(b), limit))


def edit_script(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Edit]:
    """Edits that turn A into B; see `Edit` for how to read it."""
    front = common_prefix(a, b)
    back = common_suffix(a, b, min(len(a), len(b)) - front)
    mid_a, mid_b = a[front : len(a) - back], b[front : len(b) - back]
    # The first tokens differ: their order decides which sequence goes first, so that (b, a) takes the same path.
    flip = bool(mid_a and mid_b) and repr(mid_b[0]) < repr(mid_a[0])
    runs, moves = _align(mid_b, mid_a) if flip else _align(mid_a, mid_b)
    runs, moves = ([_shift(run, front, flip) for run in found] for found in (runs, moves))
    ends = Run(0, 0, front), Run(len(a) - back, len(b) - back, back)
    return list(_edits(_without_islands([ends[0], *runs, ends[1]]), moves))


def apply(a: Sequence[T], edits: list[Edit], b: Sequence[T]) -> list[T]:
    """Rebuild B from A and the tokens of B that are new according to the script."""
    out: list[T] = []
    for edit in edits:
        if edit.op in ("equal", "move"):
            out += a[slice(*edit.a)]
        elif edit.op != "delete":
            out += b[slice(*edit.b)]
    return out


def summary(edits: list[Edit]) -> Summary:
    """Numbers of a script and the pattern that they show."""
    sums = dict.fromkeys(("equal", "insert", "delete", "move"), 0)
    for edit in edits:
        if edit.op in ("equal", "move"):
            sums[edit.op] += _size(edit.a)
        else:
            sums["delete"] += _size(edit.a)
            sums["insert"] += _size(edit.b)
    ops = [edit.op for edit in edits]
    appended = _size(edits[-1].b) if ops == ["insert"] or ops[-2:] == ["equal", "insert"] else 0
    pattern, block = _pattern(edits[:-1] if appended else edits, appended, sums)
    at, places = _common_start(edits), _places(edits)
    return Summary(sums["equal"], sums["insert"], sums["delete"], sums["move"], pattern, at, block, appended, places)


def _pattern(edits: list[Edit], appended: int, sums: dict[str, int]) -> tuple[Pattern, int]:
    """The pattern of a script without what it appends, and the size of its block."""
    start, whole = _common_start(edits), sums["equal"] + sums["move"]
    match [*map(_kind, edits[:-1]), *(edit.op for edit in edits[-1:])]:
        case [] | ["equal"]:
            return ("appended", appended) if appended else ("equal", 0)
        case ["delete", "equal"]:
            return "front-dropped", _size(edits[0].a)
        case ["insert", "equal"] | ["equal", "insert", "equal"]:
            return "inserted-block", sums["insert"] - appended
        case ["delete"] | ["equal", "delete"] | ["equal", "delete", "equal"]:
            return "removed-block", sums["delete"]
    shorter = whole + min(sums["insert"], sums["delete"])
    if whole < _REAL_SHARE * shorter:
        return "unrelated", 0
    tail = whole - start < _REAL_SHARE * (shorter - start)
    return ("tail-replaced", sums["delete"]) if tail else ("scattered", 0)


def _kind(edit: Edit) -> Op:
    # A cut through a word leaves other tokens at the seam, and many clients put a note where they cut.
    gone, new = _size(edit.a), _size(edit.b)
    if edit.op == "replace" and max(gone, new) >= _BLOCK_TO_SEAM * min(gone, new):
        return "delete" if gone > new else "insert"
    return edit.op


def _common_start(edits: list[Edit]) -> int:
    # What moved away from the start leaves no edit there: the script may begin with a later part of A.
    return _size(edits[0].a) if edits and edits[0].op == "equal" and edits[0].a[0] == 0 else 0


def _places(edits: list[Edit]) -> int:
    ends = max((edit.a[1] for edit in edits), default=0), max((edit.b[1] for edit in edits), default=0)
    bounds = [(0, 0)]
    for edit in edits:
        if edit.op == "equal":
            bounds += [(edit.a[0], edit.b[0]), (edit.a[1], edit.b[1])]
    bounds.append(ends)
    return sum(before != after for before, after in zip(bounds[::2], bounds[1::2], strict=True))


def _size(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _shift(run: Run, by: int, flip: bool) -> Run:
    return Run(run.j + by, run.i + by, run.n) if flip else Run(run.i + by, run.j + by, run.n)


def _align(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[list[Run], list[Run]]:
    """Runs that stay, in order, and runs that move.

    Moves are searched for after the long grams, which find all that is in order, and before the short ones and the
    exact alignment, which would match single tokens of a moved block with whatever is in its place.
    """
    if not a or not b:
        return [], []
    pair = IdPair(a, b)
    runs, gaps = split(pair, [Gap(0, len(a), 0, len(b))], _LONG_GRAM)
    moves = find_moves(pair, gaps)
    pair.mask(moves)
    for k in _SHORT_GRAMS:
        more, gaps = split(pair, gaps, k, above=SMALL)
        runs += more
    for gap in gaps:
        runs += _exact(pair, gap)
    runs.sort(key=attrgetter("i"))
    return runs, moves


def _exact(pair: IdPair, gap: Gap) -> Iterator[Run]:
    """Runs of the cheapest alignment of a small gap; none in a gap that is too large or too small to have any."""
    i0, i1, j0, j1 = gap
    if max(i1 - i0, j1 - j0) > SMALL or (i1 - i0) * (j1 - j0) <= 1:
        return
    for run in equal_runs(pair.a[i0:i1], pair.b[j0:j1]):
        yield Run(i0 + run.i, j0 + run.j, run.n)


def _without_islands(runs: list[Run]) -> list[Run]:
    """Runs joined where they touch, less those that are shorter than the changes on both sides.

    A handful of equal tokens amid long changes is chance, and cuts one change into many. The first and the last run are
    the common ends: they stay.
    """
    kept = runs[:1]
    for run in runs[1:]:
        while len(kept) > 1 and kept[-1].n < min(_LONG_GRAM, _change(kept[-2], kept[-1]), _change(kept[-1], run)):
            kept.pop()
        if len(kept) > 1 and _change(kept[-1], run) == 0:
            kept[-1] = Run(kept[-1].i, kept[-1].j, kept[-1].n + run.n)
        else:
            kept.append(run)
    return kept


def _change(before: Run, after: Run) -> int:
    """Tokens that change between two runs, on the longer side."""
    return max(after.i - before.i, after.j - before.j) - before.n


def _edits(runs: list[Run], moves: list[Run]) -> Iterator[Edit]:
    """The script of ordered runs, the first and the last at the ends of the sequences, and of moved blocks."""
    gone, come = sorted(moves, reverse=True), sorted(moves, key=attrgetter("j"), reverse=True)
    i = j = 0
    for run in runs:
        out, into = _within(gone, 0, run.i), _within(come, 1, run.j)
        yield from _changed(Gap(i, run.i, j, run.j), out, into)
        i, j = run.i + run.n, run.j + run.n
        if run.n:
            yield Edit("equal", (run.i, i), (run.j, j))


def _within(moves: list[Run], side: int, end: int) -> list[Run]:
    """Take the moves off the end of a falling list that lie before ``end``."""
    taken = []
    while moves and moves[-1][side] < end:
        taken.append(moves.pop())
    return taken


def _changed(gap: Gap, out: list[Run], into: list[Run]) -> list[Edit]:
    """Edits between two runs: what goes, around the blocks that moved away, then what comes and what moved here."""
    steps: list[Edit] = []
    i, j = gap.i0, gap.j0
    for move in [*out, Run(gap.i1, gap.j1, 0)]:
        if move.i > i:
            steps.append(Edit("delete", (i, move.i), (j, j)))
        i = move.i + move.n
    for move in [*into, Run(gap.i1, gap.j1, 0)]:
        if move.j > j and steps and steps[-1].op == "delete":
            steps[-1] = Edit("replace", steps[-1].a, (j, move.j))
        elif move.j > j:
            steps.append(Edit("insert", (gap.i1, gap.i1), (j, move.j)))
        if move.n:
            steps.append(Edit("move", (move.i, move.i + move.n), (move.j, move.j + move.n)))
        j = move.j + move.n
    return steps
