"""Where two token sequences surely correspond: runs of tokens around k-grams that occur once in each.

Every step is linear in the tokens
(times the logarithm of the anchors), whatever the tokens are: a repeated token gives no anchor instead of many pairs.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

MOST_ROUNDS = 8
"""How often a gap between anchors may be searched again; limits inputs crafted to yield one anchor per round."""
PART, MOST_PARTS = 100_000, 64
"""Tokens of a gap whose k-grams are held in memory at once (about 20 MB), and the maximum number of parts of a larger
gap."""
LEAST_MOVE = 32
"""Tokens of the smallest block that counts as moved; shorter ones are boilerplate that occurs everywhere."""
_SAMPLE = LEAST_MOVE // 2
"""A block of `LEAST_MOVE` tokens holds at least one whole sample of this length at a multiple of it."""


class Run(NamedTuple):
    """Tokens ``a[i:i+n]`` that equal ``b[j:j+n]``."""

    i: int
    j: int
    n: int


class Gap(NamedTuple):
    """``a[i0:i1]`` and ``b[j0:j1]``, between two runs."""

    i0: int
    i1: int
    j0: int
    j1: int


class IdPair:
    """Both sequences as small ids, the same id for the same token."""

    def __init__(self, a: Sequence[Hashable], b: Sequence[Hashable]) -> None:
        seen = dict.fromkeys(a)
        seen.update(dict.fromkeys(b))
        ids = dict(zip(seen, range(len(seen)), strict=True))
        self.a = array("i", map(ids.__getitem__, a))
        self.b = array("i", map(ids.__getitem__, b))
        self._unused = len(ids)

    def mask(self, moves: list[Run]) -> None:
        """Make the tokens of moved blocks equal to nothing, so that no later step aligns them with something else."""
        for i, j, n in moves:
            self.a[i : i + n] = array("i", [self._unused]) * n
            self.b[j : j + n] = array("i", [self._unused + 1]) * n


def forward(a: Sequence[object], b: Sequence[object], i: int, j: int, limit: int) -> int:
    """Tokens equal from ``a[i]`` and ``b[j]`` on, at most ``limit``.

    Slices are compared: much faster than tokens.
    """
    n, step = 0, min(16, limit)
    while step and a[i + n : i + n + step] == b[j + n : j + n + step]:
        n += step
        step = min(2 * step, limit - n)
    while step > 1:
        half = step // 2
        if a[i + n : i + n + half] == b[j + n : j + n + half]:
            n += half
            step -= half
        else:
            step = half
    return n


def backward(a: Sequence[object], b: Sequence[object], i: int, j: int, limit: int) -> int:
    """Tokens equal before ``a[i]`` and ``b[j]``, at most ``limit``."""
    n, step = 0, min(16, limit)
    while step and a[i - n - step : i - n] == b[j - n - step : j - n]:
        n += step
        step = min(2 * step, limit - n)
    while step > 1:
        half = step // 2
        if a[i - n - half : i - n] == b[j - n - half : j - n]:
            n += half
            step -= half
        else:
            step = half
    return n


def split(pair: IdPair, gaps: list[Gap], k: int, above: int = 0) -> tuple[list[Run], list[Gap]]:
    """Anchor gaps of more than ``above`` tokens on k-grams, again and again; the runs found and the gaps left."""
    raw_a, raw_b = pair.a.tobytes(), pair.b.tobytes()
    runs: list[Run] = []
    left: list[Gap] = []
    todo = [(gap, 0) for gap in gaps]
    while todo:
        gap, rounds = todo.pop()
        gap, ends = _trim(pair, gap)
        runs += ends
        size_a, size_b = gap.i1 - gap.i0, gap.j1 - gap.j0
        chain: list[Run] = []
        if min(size_a, size_b) >= k and max(size_a, size_b) > above and rounds < MOST_ROUNDS:
            chain = _clip(heaviest(_grow(pair, gap, _anchors(raw_a, raw_b, gap, k), k)), k)
        if chain:
            runs += chain
            todo += [(inner, rounds + 1) for inner in between(gap, chain)]
        elif size_a or size_b:
            left.append(gap)
    return runs, left


def between(gap: Gap, runs: list[Run]) -> Iterator[Gap]:
    """Gaps that ordered runs leave in a gap."""
    i, j = gap.i0, gap.j0
    for run in runs:
        if run.i > i or run.j > j:
            yield Gap(i, run.i, j, run.j)
        i, j = run.i + run.n, run.j + run.n
    if gap.i1 > i or gap.j1 > j:
        yield Gap(i, gap.i1, j, gap.j1)


def heaviest(runs: list[Run]) -> list[Run]:
    """The subset with the most tokens whose order is the same in both; ``runs`` come in the order of ``a``.

    ``starts`` and ``weights`` both rise: a chain that ends later in ``b`` and weighs no more is useless.
    """
    starts: list[int] = []
    weights: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, run in enumerate(runs):
        at = bisect_left(starts, run.j)
        before.append(last[at - 1] if at else -1)
        weight = run.n + (weights[at - 1] if at else 0)
        useless = at
        while useless < len(weights) and weights[useless] <= weight:
            useless += 1
        starts[at:useless], weights[at:useless], last[at:useless] = [run.j], [weight], [index]
    chain: list[Run] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(runs[index])
        index = before[index]
    return chain[::-1]


def find_moves(pair: IdPair, gaps: list[Gap]) -> list[Run]:
    """Blocks of at least `LEAST_MOVE` tokens that are in a gap of ``a`` and, equal, in some gap of ``b``."""
    raw_b, width = pair.b.tobytes(), pair.b.itemsize
    samples = _samples(pair, gaps)
    taken = bytearray(len(pair.a))
    moves: list[Run] = []
    for gap in gaps if samples else []:
        floor = j = gap.j0
        while j + _SAMPLE <= gap.j1:
            home = samples.get(raw_b[width * j : width * (j + _SAMPLE)])
            if home is not None and not taken[home[0]]:
                i, source = home
                low, high = taken.rfind(1, source.i0, i) + 1 or source.i0, taken.find(1, i, source.i1)
                back = backward(pair.a, pair.b, i, j, min(i - low, j - floor))
                room = min((source.i1 if high < 0 else high) - i, gap.j1 - j)
                size = back + forward(pair.a, pair.b, i, j, room)
                if size >= LEAST_MOVE:
                    moves.append(Run(i - back, j - back, size))
                    taken[i - back : i - back + size] = b"\1" * size
                    floor = j = j - back + size
                    continue
            j += 1
    return moves


def _samples(pair: IdPair, gaps: list[Gap]) -> dict[bytes, tuple[int, Gap]]:
    """Samples of the gaps of ``a`` that occur in no other place of the sampled grid."""
    raw, width = pair.a.tobytes(), pair.a.itemsize
    found: dict[bytes, tuple[int, Gap]] = {}
    repeated: set[bytes] = set()
    for gap in gaps:
        for i in range(gap.i0, gap.i1 - _SAMPLE + 1, _SAMPLE):
            sample = raw[width * i : width * (i + _SAMPLE)]
            if sample in found:
                repeated.add(sample)
            found[sample] = (i, gap)
    for sample in repeated:
        del found[sample]
    return found


def _trim(pair: IdPair, gap: Gap) -> tuple[Gap, list[Run]]:
    """A gap without the tokens that are equal at its ends, and these."""
    i0, i1, j0, j1 = gap
    front = forward(pair.a, pair.b, i0, j0, min(i1 - i0, j1 - j0))
    back = backward(pair.a, pair.b, i1, j1, min(i1 - i0, j1 - j0) - front)
    ends = [run for run in (Run(i0, j0, front), Run(i1 - back, j1 - back, back)) if run.n]
    return Gap(i0 + front, i1 - back, j0 + front, j1 - back), ends


def _anchors(raw_a: bytes, raw_b: bytes, gap: Gap, k: int) -> Iterator[tuple[int, int]]:
    """Places of the k-grams that occur once in either side of a gap, in the order of ``a``.

    A large gap is gone through in parts, by the remainders of the hashes of its grams: one part at a time is in memory.
    """
    (i0, i1, j0, j1), parts = gap, min(MOST_PARTS, 1 + max(gap.i1 - gap.i0, gap.j1 - gap.j0) // PART)
    if parts == 1:
        in_a = _unique(_grams(raw_a, i0, i1, k), range(i0, i1 - k + 1))
        yield from _shared(in_a, _unique(_grams(raw_b, j0, j1, k), range(j0, j1 - k + 1)))
        return
    marks_a, marks_b = _marks(raw_a, i0, i1, k, parts), _marks(raw_b, j0, j1, k, parts)
    partners = array("i", [-1]) * len(marks_a)
    for part in range(parts):
        places_a, places_b = (_places(marks, part) for marks in (marks_a, marks_b))
        in_a = _unique(_chosen(raw_a, i0, places_a, k), places_a)
        for i, j in _shared(in_a, _unique(_chosen(raw_b, j0, places_b, k), places_b)):
            partners[i] = j
    yield from ((i0 + i, j0 + j) for i, j in enumerate(partners) if j >= 0)


def _grams(raw: bytes, start: int, end: int, k: int) -> list[bytes]:
    """The k-grams of a range, in order. Bytes: a third of the memory of tuples of ints."""
    width = array("i").itemsize
    return [raw[p : p + width * k] for p in range(width * start, width * (end - k + 1), width)]


def _chosen(raw: bytes, start: int, places: Sequence[int], k: int) -> list[bytes]:
    """The k-grams at some places, counted from ``start``."""
    width = array("i").itemsize
    return [raw[p : p + width * k] for p in (width * (start + place) for place in places)]


def _marks(raw: bytes, start: int, end: int, k: int, parts: int) -> bytes:
    """The part that each k-gram of a range belongs to, in order."""
    steps = range(start, end - k + 1, PART)
    return b"".join(bytes([hash(g) % parts for g in _grams(raw, p, min(end, p + PART + k - 1), k)]) for p in steps)


def _places(marks: bytes, part: int) -> array[int]:
    """Positions of a byte, in order."""
    return array("i", (found.start() for found in re.finditer(re.escape(bytes([part])), marks, re.DOTALL)))


def _unique(grams: list[bytes], places: Sequence[int]) -> dict[bytes, int]:
    """Places of the grams that occur once, in order."""
    found = dict(zip(grams, places, strict=True))
    if len(found) < len(grams):
        for gram, times in Counter(grams).items():
            if times > 1:
                del found[gram]
    return found


def _shared(in_a: dict[bytes, int], in_b: dict[bytes, int]) -> Iterator[tuple[int, int]]:
    """Positions of the grams that both have, in the order of ``a``."""
    for gram, i in in_a.items():
        j = in_b.get(gram)
        if j is not None:
            yield i, j


def _grow(pair: IdPair, gap: Gap, pairs: Iterator[tuple[int, int]], k: int) -> list[Run]:
    """Runs from anchors; ``n`` counts the k-grams that start in a run.

    Counted so, no two runs share a place: a gram in both would have two places in a sequence that has it once.
    """
    runs: list[Run] = []
    end = gap.i0
    for i, j in pairs:
        if i >= end:
            starts = forward(pair.a, pair.b, i, j, min(gap.i1 - i, gap.j1 - j)) - k + 1
            runs.append(Run(i, j, starts))
            end = i + starts
    return runs


def _clip(chain: list[Run], k: int) -> list[Run]:
    """Runs counted in tokens, each ending where the next begins in either sequence."""
    clipped = [
        Run(run.i, run.j, min(run.n + k - 1, after.i - run.i, after.j - run.j)) for run, after in pairwise(chain)
    ]
    return clipped + [run._replace(n=run.n + k - 1) for run in chain[-1:]]
