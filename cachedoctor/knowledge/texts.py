"""What two texts have in common. Pure functions; knows no server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Text = TypeVar("_Text", str, bytes)


def longest_prefix(text: _Text, others: Iterable[_Text]) -> int | None:
    """Return how many characters, or bytes, ``text`` begins with like the one of ``others`` that is most like it.

    None without another. One that is not longer like it than the best so far is passed over at a glance.
    """
    best: int | None = None
    longer = text[:0]
    for other in others:
        if best is None or (best < len(text) and other.startswith(longer)):
            best = common_prefix(text, other)
            longer = text[: best + 1]
    return best


def common_prefix(a: _Text, b: _Text) -> int:
    """Return how many characters, or bytes, both begin with.

    Found by halving: comparing slices is fast, one character after the other is not.
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
