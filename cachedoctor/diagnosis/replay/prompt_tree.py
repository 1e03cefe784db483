"""Every prompt that was ever sent is a path in one radix tree."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_KEY = 33
"""Bits of a key that the first token of an edge takes; ids of tokens have at most 32, sign included."""


class PromptTree:
    """Token sequences that share their beginnings, and how long the common prefix of any two is.

    Add all of them first: the first question after an addition orders the whole tree.
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
        self._at = array("i")  # of each prompt: the place of its node in the order
        self._family = array("i")  # of each prompt: the edge from the root that it begins with
        self._least: list[array[int]] = []

    def __len__(self) -> int:
        return len(self._length)

    def add(self, tokens: Sequence[int]) -> int:
        """Give the id of a token sequence; ids count from 0, and equal sequences have ids of their own."""
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
        """Give the id of a sequence of which only lengths are known: it shares ``common`` tokens with ``of``.

        The rest is shared with nothing. ``common`` is cut to the shorter of both.
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
        """Tokens of a sequence."""
        return self._length[prompt]

    def tokens(self, prompt: int) -> array[int] | None:
        """The sequence itself; None when some of it was invented."""
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
        """The tokens of a sequence before the first that was invented."""
        node, end = self._node[prompt], self._length[prompt]
        while node:
            if self._place[node] < 0:
                end = min(end, self._top[node])
            node = self._parent[node]
        return self._first(prompt, end)

    def common(self, one: int, other: int) -> int:
        """Longest common prefix of two sequences, in tokens."""
        if not self._ordered:
            self._settle()
        if self._family[one] != self._family[other]:
            return 0
        low, high = self._at[one], self._at[other]
        shorter = self._length[one]
        if self._length[other] < shorter:
            shorter = self._length[other]
        if low == high:
            return shorter
        if low > high:
            low, high = high, low
        level = (high - low).bit_length() - 1
        row = self._least[level]
        least = row[low + 1]
        if row[high + 1 - (1 << level)] < least:
            least = row[high + 1 - (1 << level)]
        return least if least < shorter else shorter

    def common_with(self, one: int, others: Sequence[int]) -> list[int]:
        """Longest common prefix of a sequence with each of the others, in less time than one by one."""
        if not self._ordered:
            self._settle()
        families, at, lengths, rows = self._family, self._at, self._length, self._least
        family, here, length = families[one], at[one], lengths[one]
        found = []
        for other in others:
            if families[other] != family:
                found.append(0)
                continue
            shorter, low, high = lengths[other], here, at[other]
            if length < shorter:
                shorter = length
            if low != high:
                if low > high:
                    low, high = high, low
                level = (high - low).bit_length() - 1
                row = rows[level]
                least, right = row[low + 1], row[high + 1 - (1 << level)]
                if right < least:
                    least = right
                if least < shorter:
                    shorter = least
            found.append(shorter)
        return found

    @property
    def families(self) -> Sequence[int]:
        """Of each sequence a number: those with different ones share nothing."""
        if not self._ordered:
            self._settle()
        return self._family

    def rank(self, prompt: int) -> tuple[int, int]:
        """Place in the order of the tree: of those before a sequence, the nearest one shares most with it."""
        if not self._ordered:
            self._settle()
        return self._at[prompt], self._length[prompt]

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
        """Number the nodes so that a node comes before all below it, and prepare the least of every stretch."""
        size = len(self._parent)
        first, following = array("i", [0]) * size, array("i", [0]) * size
        for node in range(size - 1, 0, -1):
            following[node] = first[self._parent[node]]
            first[self._parent[node]] = node
        order, tops, family = array("i", [0]) * size, array("i"), array("i", [0]) * size
        waiting = [0]
        while waiting:
            node = waiting.pop()
            order[node] = len(tops)
            family[node] = family[self._parent[node]] or node if node else 0
            tops.append(self._top[node])
            if following[node]:
                waiting.append(following[node])
            if first[node]:
                waiting.append(first[node])
        rows, width = [tops], 1
        while 2 * width <= size:
            rows.append(array("i", map(min, rows[-1], memoryview(rows[-1])[width:])))
            width *= 2
        for prompt, length in enumerate(self._length):
            node = self._node[prompt]
            while node and self._top[node] >= length:  # split since: the sequence ends in its upper part
                node = self._parent[node]
            self._node[prompt] = node
        self._at = array("i", map(order.__getitem__, self._node))
        self._family = array("i", map(family.__getitem__, self._node))
        self._least, self._ordered = rows, True

    def _kept(self, node: int, length: int) -> int:
        self._node.append(node)
        self._length.append(length)
        self._ordered = False
        return len(self._length) - 1
