"""A trace for other simulators (Mooncake's form), out of a log or bodies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import IO

import msgspec

from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor.whatif.block_trace import BlockTraffic
from cachedoctor.doctor.whatif.evidence import ServerTraffic

BLOCK = 512
"""Tokens of a block."""


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
    for at in sorted(range(len(traffic.asked)), key=traffic.places.__getitem__):
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


_APART = 1000
"""Milliseconds between two requests whose arrival times are unknown."""
_LEAST_OUTPUT = 1
"""Tokens: what a server generates at least."""


def write(evidence: ServerTraffic | BlockTraffic, out: IO[bytes]) -> list[str]:
    """Write one line per request; give, in words, what of it is not measured."""
    notes = []
    if evidence.placed.bodies is None:
        notes.append("hash_ids are invented: they keep the lengths and common prefixes shown in the log, but no text")
    elif not evidence.placed.exact:
        notes.append("lengths count words and punctuation; --tokenizer makes lengths exact")
    stamps = _timestamps(evidence.times)
    if stamps is None:
        notes.append(f"request times are unknown; timestamps follow the order of requests, {_APART} ms apart")
        stamps = [_APART * at for at in range(len(evidence.times))]
    outputs = [_LEAST_OUTPUT if tokens is None else tokens for tokens in evidence.generated]
    unknown = sum(tokens is None for tokens in evidence.generated)
    if unknown:
        notes.append(f"for {unknown:,} requests the reply length is unknown, so output_length is {_LEAST_OUTPUT}")
    if isinstance(evidence, BlockTraffic) and unknown < len(outputs):
        notes.append(
            f"for {len(outputs) - unknown:,} requests output_length counts only the part of the reply that the "
            "client sent back"
        )
    left_out = evidence.placed.requests_without_length + evidence.placed.bodies_left_out
    if left_out:
        notes.append(f"{left_out:,} requests or bodies could not be matched and are left out")
    for row in rows(evidence.traffic, stamps, outputs):
        out.write(msgspec.json.encode(row) + b"\n")
    return notes


def _timestamps(times: Sequence[str | None]) -> list[int] | None:
    """Milliseconds since the earliest; None unless all are known."""
    moments = list[datetime]()
    for time in times:
        try:
            moments.append(datetime.fromisoformat(time or ""))
        except ValueError:
            return None
    if len({one.tzinfo is None for one in moments}) > 1:
        return None
    first = min(moments)
    return [round((one - first).total_seconds() * 1000) for one in moments]
