"""Traffic as a trace for simulators of caches: one JSON object per request, as Mooncake publishes them.

Source: FAST25-release/traces of kvcache-ai/Mooncake: ``timestamp`` in milliseconds from the first request,
``input_length`` and ``output_length`` in tokens, ``hash_ids`` of the blocks of 512 tokens, the last of which may be
shorter; two requests have the same id at a place where all tokens up to the end of that block are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cachedoctor.replay.traffic import Traffic

BLOCK = 512
"""Tokens."""


class TraceRow(msgspec.Struct):
    """One request."""

    timestamp: int
    """Milliseconds since the first request."""
    input_length: int
    output_length: int
    hash_ids: list[int]


def rows(traffic: Traffic, timestamps: Sequence[int], outputs: Sequence[int]) -> list[TraceRow]:
    """Make a trace of what was computed; ``timestamps`` and ``outputs`` are parallel to what was asked."""
    blocks = _blocks(traffic)
    numbers: dict[int, int] = {}
    found = []
    for at, one in enumerate(traffic.asked):
        if not one.refused:
            ids = [numbers.setdefault(block, len(numbers)) for block in blocks[at]]
            found.append(TraceRow(timestamps[at], traffic.tree.length(one.prompt), outputs[at], ids))
    return found


def _blocks(traffic: Traffic) -> list[list[int]]:
    """Blocks of each prompt. In the order of the tree no prompt shares more with any before it than with the last."""
    tree, found, made = traffic.tree, [list[int]()] * len(traffic.asked), 0
    before: tuple[int, list[int]] | None = None
    for at in sorted(range(len(traffic.asked)), key=lambda at: tree.rank(traffic.asked[at].prompt)):
        prompt, shared = traffic.asked[at].prompt, list[int]()
        length = tree.length(prompt)
        if before is not None:
            common = tree.common(before[0], prompt)
            same = common == length == tree.length(before[0])
            shared = before[1] if same else before[1][: common // BLOCK]
        new = -(-length // BLOCK) - len(shared)
        found[at] = [*shared, *range(made, made + new)]
        made += new
        before = prompt, found[at]
    return found
