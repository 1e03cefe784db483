"""The cheapest alignment of two short token sequences: ``abcd`` and ``axcd`` share the runs ``a`` and ``cd``.

Levenshtein distance, bit-parallel over one sequence (Myers 1999, Hyyrö 2003): a row of the table is two integers with
a bit per token, so that 5,000 times 5,000 tokens take 20 ms and 6 MB.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from cachedoctor.prompts.align.anchors import Run, backward, forward


def equal_runs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Run]:
    """Return what a cheapest edit script leaves as it is, in order; of several such scripts, always the same."""
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
