"""A radix tree in which every sent prompt is a path."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

_KEY = 33
"""Bits of a key that the first token of an edge takes; ids of tokens have at most 32, sign included."""


class PromptTree:
    """Token sequences with common prefixes, and the length of the common prefix of any two.

    Add all sequences first: the first query after an addition sorts all of them.
    """

    def __init__(self) -> None:
        self._pool = array("i")
        self._parent = array("i", [-1])
        self._top = array("i", [0])  # depth in tokens at which the edge of a node begins, and ends
        self._end = array("i", [0])
        self._place = array("q", [0])  # of the edge's first token in the pool; -1: invented
        self._child: dict[int, int] = {}
        self._node = array("i")  # of each prompt
        self._length = array("i")
        self._ordered = False
        self._place_of = array("i")
        self._ends = array("i")  # of each place: tokens
        self._last = array("i")
        self._shared_by = _sharing(array("i"), array("i"))

    def __len__(self) -> int:
        return len(self._length)

    def add(self, tokens: Sequence[int]) -> int:
        """Return the id of a token sequence; ids count from 0, and equal sequences have different ids."""
        sent = tokens if isinstance(tokens, array) and tokens.typecode == "i" else array("i", tokens)
        node, at = 0, 0
        while at < len(sent):
            child = self._child.get((node << _KEY) + sent[at])
            if child is None:
                self._pool.extend(sent[at:])
                node, at = self._grow(node, len(sent), len(self._pool) - len(sent) + at), len(sent)
                self._child[(self._parent[node] << _KEY) + self._pool[self._place[node]]] = node
                break
            shared = self._shared(child, sent, at)
            at += shared
            whole = at == self._end[child]
            node = child if whole or at == len(sent) else self._split(child, at)
        return self._kept(node, len(sent))

    def branch(self, of: int | None, common: int, length: int) -> int:
        """Return the id of a sequence of known length that shares ``common`` tokens with ``of``.

        The rest is shared with no sequence. ``common`` is at most the length of the shorter one.
        """
        if of is None:
            node, common = 0, 0
        else:
            common = min(common, length, self._length[of])
            node = self._node[of]
            while node and self._top[node] >= common:
                node = self._parent[node]
        if length > common:
            node = self._grow(self._split(node, common) if self._end[node] > common else node, length, -1)
        return self._kept(node, length)

    def length(self, prompt: int) -> int:
        """Number of tokens of a sequence."""
        return self._length[prompt]

    def tokens(self, prompt: int) -> array[int] | None:
        """The sequence itself; None if some of it was invented."""
        found, length = self.known(prompt), self._length[prompt]
        return found if len(found) == length else None

    def _first(self, prompt: int, end: int) -> array[int]:
        """The first ``end`` tokens of a sequence, none of which was invented."""
        parts, node = [], self._node[prompt]
        while node:
            place, top = self._place[node], self._top[node]
            if top < end:  # a node that was split since may begin after the end
                parts.append(self._pool[place : place + end - top])
                end = top
            node = self._parent[node]
        found = array("i")
        for part in reversed(parts):
            found.extend(part)
        return found

    def known(self, prompt: int) -> array[int]:
        """The tokens of a sequence before its first invented token."""
        node, end = self._node[prompt], self._length[prompt]
        while node:
            if self._place[node] < 0:
                end = min(end, self._top[node])
            node = self._parent[node]
        return self._first(prompt, end)

    def common(self, one: int, other: int) -> int:
        """Length of the longest common prefix of two sequences, in tokens."""
        places = self.places
        return self._shared_by(places[one], places[other])

    @property
    def places(self) -> Sequence[int]:
        """The place of each sequence in the order of the tree: a sequence comes before all that continue it.

        Of the sequences before a sequence, the nearest one shares most with it; the same is true of those after it.
        Equal sequences have one place.
        """
        if not self._ordered:
            self._settle()
        return self._place_of

    @property
    def shared(self) -> Callable[[int, int], int]:
        """Return a function for the common prefix of the sequences at two places; valid until a sequence is added."""
        if not self._ordered:
            self._settle()
        return self._shared_by

    @property
    def lasts(self) -> Sequence[int]:
        """For each place, the last place whose sequence begins with the sequence of this place."""
        if not self._ordered:
            self._settle()
        return self._last

    def alike(self, place: int, least: int) -> tuple[int, int]:
        """The first and last place of sequences that share at least ``least`` tokens with the one at a place."""
        shared, most, low, high, step = self.shared, len(self._ends) - 1, place, place, 1
        while low >= step and shared(low - step, place) >= least:
            low -= step
            step *= 2
        while step > 1:
            step //= 2
            if low >= step and shared(low - step, place) >= least:
                low -= step
        while high + step <= most and shared(place, high + step) >= least:
            high += step
            step *= 2
        while step > 1:
            step //= 2
            if high + step <= most and shared(place, high + step) >= least:
                high += step
        return low, high

    def _shared(self, child: int, sent: array[int], at: int) -> int:
        """Tokens of an edge, of which the first is known to fit, that a sequence continues."""
        place, size = self._place[child], min(self._end[child] - self._top[child], len(sent) - at)
        pool = self._pool
        if pool[place : place + size] == sent[at : at + size]:
            return size
        step, done = 64, 1
        while pool[place + done : place + done + step] == sent[at + done : at + done + step]:
            done += step
            step *= 2
        low, high = done, min(done + step, size)
        while high - low > 1:
            middle = (low + high) // 2
            if pool[place + low : place + middle] == sent[at + low : at + middle]:
                low = middle
            else:
                high = middle
        return low if pool[place + low] != sent[at + low] else high

    def _grow(self, parent: int, end: int, place: int) -> int:
        node = len(self._parent)
        self._parent.append(parent)
        self._top.append(self._end[parent])
        self._end.append(end)
        self._place.append(place)
        self._ordered = False
        return node

    def _split(self, node: int, at: int) -> int:
        """Cut the edge of a node at a depth; the node keeps its beginning, what continued from it gets a new one.

        Sequences that end in the lower part continue from the new node as well.
        """
        upper = self._grow(self._parent[node], at, self._place[node])
        if self._place[node] >= 0:
            first = self._pool[self._place[node]]
            self._child[(self._parent[node] << _KEY) + first] = upper
            self._place[node] += at - self._top[node]
            self._child[(upper << _KEY) + self._pool[self._place[node]]] = node
        self._parent[node], self._top[node] = upper, at
        return upper

    def _settle(self) -> None:
        """Order the sequences so that each comes before all that continue it."""
        size = len(self._parent)
        first, following = array("i", [0]) * size, array("i", [0]) * size
        for node in range(size - 1, 0, -1):
            following[node] = first[self._parent[node]]
            first[self._parent[node]] = node
        order, tops = array("i", [0]) * size, array("i")
        waiting = [0]
        while waiting:
            node = waiting.pop()
            order[node] = len(tops)
            tops.append(self._top[node])
            if following[node]:
                waiting.append(following[node])
            if first[node]:
                waiting.append(first[node])
        for prompt, length in enumerate(self._length):
            node = self._node[prompt]
            while node and self._top[node] >= length:  # split since: the sequence ends in its upper part
                node = self._parent[node]
            self._node[prompt] = node
        self._number([order[node] for node in self._node], tops)
        self._ordered = True

    def _number(self, at: Sequence[int], tops: array[int]) -> None:
        """Give each sequence its place. ``at``: of its node in the order of nodes, the tops of whose edges follow."""
        lengths = self._length
        self._place_of = array("i", [0]) * len(lengths)
        ends, shared = array("i"), array("i")  # of each place: tokens, and those that it shares with the place before
        before, last = -1, -1
        keys = [(node << 32) + length for node, length in zip(at, lengths, strict=True)]
        for prompt in sorted(range(len(lengths)), key=keys.__getitem__):
            node, length = at[prompt], lengths[prompt]
            if node != before or length != last:
                between = min(tops[before + 1 : node + 1]) if 0 <= before < node else last if before == node else 0
                shared.append(min(between, last, length) if ends else 0)
                ends.append(length)
                before, last = node, length
            self._place_of[prompt] = len(ends) - 1
        self._ends, self._last, self._shared_by = ends, _lasts(ends, shared), _sharing(ends, shared)

    def _kept(self, node: int, length: int) -> int:
        self._node.append(node)
        self._length.append(length)
        self._ordered = False
        return len(self._length) - 1


def _lasts(ends: array[int], shared: array[int]) -> array[int]:
    """Of each place the last one whose sequence begins with its own."""
    found, begun = array("i", range(len(ends))), list[int]()
    for place, common in enumerate(shared):
        while begun and ends[begun[-1]] > common:
            found[begun.pop()] = place - 1
        begun.append(place)
    for place in begun:
        found[place] = len(ends) - 1
    return found


def _sharing(ends: array[int], shared: array[int]) -> Callable[[int, int], int]:
    """What two places share: the least that neighbours between them share, by the least of stretches twice as long."""
    rows, width = [shared], 1
    while 2 * width <= len(shared):
        rows.append(array("i", map(min, rows[-1], memoryview(rows[-1])[width:])))
        width *= 2

    def least(low: int, high: int) -> int:
        if low == high:
            return ends[low]
        if low > high:
            low, high = high, low
        level = (high - low).bit_length() - 1
        row = rows[level]
        left, right = row[low + 1], row[high + 1 - (1 << level)]
        return left if left < right else right

    return least
