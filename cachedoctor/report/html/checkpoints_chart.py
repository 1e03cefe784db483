"""Why a slot could not go back: its checkpoints against the common prefix, for the requests that recomputed most.

Covers RequestRow; the drawing itself is in templates/charts.svg.j2.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from cachedoctor.model import RequestRow
from cachedoctor.report.html.request_columns import box, tokens
from cachedoctor.report.words.numbers import count, number

MOST = 20
"""Requests drawn."""
WIDTH = 1000


@dataclass(slots=True)
class Ruler:
    """One request: the prompt from left to right."""

    row: RequestRow
    words: str
    facts: list[tuple[str, str]]
    prefix: str
    cached: str
    reference: str
    checkpoints: str
    restored: str


class CheckpointsChart:
    """Keeps the requests that recomputed most, of those whose checkpoint positions are known; counts the others."""

    def __init__(self) -> None:
        self.total = 0
        self._worst: list[tuple[int, int, RequestRow]] = []

    def add(self, row: RequestRow) -> None:
        """Take a request."""
        if row.outcome not in ("partial", "reprocessed") or not row.checkpoints.held or not row.lost_tokens:
            return
        self.total += 1
        split = tokens(row)
        heapq.heappush(self._worst, (split.recomputed if split else 0, -row.index, row))
        if len(self._worst) > MOST:
            heapq.heappop(self._worst)

    def draw(self) -> list[Ruler]:
        """Lay them out, the worst first."""
        return [_ruler(row) for _, _, row in sorted(self._worst, key=lambda entry: entry[:2], reverse=True)]


def _ruler(row: RequestRow) -> Ruler:
    held, back = row.checkpoints.held, row.checkpoints.restored_at
    ends = [end for _, end in held] + ([back[1]] if back else [])
    sizes = (row.prompt_tokens, row.reference_tokens, row.held_tokens, row.common_prefix_tokens, row.cached_tokens)
    split = tokens(row)
    whole = max([1, *(size for size in sizes if size), *(end + 1 for end in ends)])
    facts = [
        ("prompt", row.prompt_tokens), ("common prefix", row.common_prefix_tokens), ("reused", row.cached_tokens),
        ("recomputed", split and split.recomputed), ("slot had before", row.reference_tokens),
    ]  # fmt: skip
    return Ruler(
        row=row,
        words=_words(row),
        facts=[(name, "unknown" if value is None else count(value, "token")) for name, value in facts],
        prefix=_bar(row.common_prefix_tokens, whole, 6, 10),
        cached=_bar(row.cached_tokens, whole, 6, 10),
        reference=_bar(row.reference_tokens, whole, 16, 3),
        checkpoints="".join(f"M{_x(end + 1, whole):.1f} 2v14" for _, end in held if back is None or end != back[1]),
        restored=f"M{_x(back[1] + 1, whole):.1f} 0v22" if back else "",
    )


def _bar(tokens: int | None, whole: int, y: float, height: float) -> str:
    return box(0, y, _x(tokens, whole), height) if tokens else ""


def _x(tokens: int, whole: int) -> float:
    return WIDTH * tokens / whole


def _words(row: RequestRow) -> str:
    """Say what the positions show, and no more: whether a checkpoint may be used depends on the build, too."""
    held, back, prefix = row.checkpoints.held, row.checkpoints.restored_at, row.common_prefix_tokens
    if back is not None:
        return (
            f"The slot went back to the checkpoint at position {number(back[1])}; everything after it was recomputed."
        )
    if prefix is None:
        return f"The slot held {count(len(held), 'checkpoint')}; the point where the prompts diverge is unknown."
    within = [end for _, end in held if end < prefix]
    if within:
        at = number(max(within))
        return f"A checkpoint at position {at} is inside the common prefix, but the server did not use it."
    nearest = number(min(end for _, end in held))
    several = "Both" if len(held) == 2 else f"All {number(len(held))}"
    many = "The only checkpoint of the slot ends" if len(held) == 1 else f"{several} checkpoints of the slot end"
    where = f"at position {nearest}" if len(held) == 1 else f"the nearest at position {nearest}"
    return (
        f"{many} after the point where the prompts diverge ({count(prefix, 'token')}), {where}: no usable checkpoint."
    )
