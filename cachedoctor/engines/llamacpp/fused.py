"""Lines that nearly always follow each other, read in one match: slot choice and launch, the batches of a prompt,
the checkpoints looked at, timings and release; and a whole request where nothing else stands in between.

A shortcut for speed only: where the lines stand otherwise, the catalogue's rows read them one by one, with the same
result. Knows the wording of these few lines.
"""

from __future__ import annotations

import re

# groups 1 and 2 are slot and task, from the slot prefix that stands before PATTERN
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, TASK = range(3, 8)
WHOLE = 8
CACHED_WORD, CACHED, REST = 14, 15, 16
CHECKING = 17
END = 18
"""First of the six groups of an end: header, prompt ms, processed, generated, released, truncated."""

_STAMP = rb"(?:[\d.]{12,} )?(?:[IW] )?"
_SAME = _STAMP + rb"slot +[^\s:]*: id +\1 \| task "
_RATE = rb" tokens \([ \d.]+ ms per token, +[\d.]+ tokens per second\)\n"


def _end(task: bytes) -> bytes:
    """Timings and release of the task that the backreference ``task`` names; six groups."""
    timing = rb"(?:" + _SAME + task + rb" \| )? *"
    return (
        rb"(\n?)prompt eval time = +([\d.]+) ms / +(\d+)" + _RATE
        + timing + rb"eval time = +[\d.]+ ms / +(\d+)" + _RATE
        + timing + rb"total time = [^\n]*\n"
        + rb"(?:" + _SAME + task + rb" \| +graphs reused = [^\n]*\n)?"
        + _SAME + task + rb" \| stop processing: n_tokens = (\d+), truncated = ([01])(?=\n)"
    )  # fmt: skip


_CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_)?sim_best = ([\d.]+) \(> [\d.]+ thold\), f_keep = ([\d.]+)"
    + rb"|LRU, t_last = (-?\d+))\n"
    + _SAME + rb"(\d+) \| processing task, is_child = 0(?=\n)"
    + rb"(?:\n" + _SAME + rb"\7 \| " + _end(rb"\7") + rb")?"
)  # fmt: skip

_BATCH = rb"(?:cached )?n_tokens = \d+, memory_seq_rm \[\d+, end\)"
_AFTER = (
    rb"(?:" + _BATCH + rb"|created context checkpoint \d+ of \d+ \([^\n]*|prompt processing [^\n]*|prompt done, [^\n]*)"
)
_BATCHES = (
    rb"(cached )?n_tokens = (\d+), memory_seq_rm \[\d+, end\)((?:\n" + _SAME + rb"\2 \| " + _AFTER + rb")*)(?=\n)"
)

_CHECK = rb"hecking checkpoint with \[-?\d+, -?\d+\] against -?\d+\.\.\."
_CHECKS = rb"(C|c)" + _CHECK + rb"(?:\n" + _SAME + rb"\2 \| [Cc]" + _CHECK + rb")*(?=\n)"

PATTERN = rb"(?:" + _CHOICE + rb"|" + _BATCHES + rb"|" + _CHECKS + rb"|" + _end(rb"\2") + rb")"
"""Stands behind the slot prefix."""

GROUPS = re.compile(rb"()()" + PATTERN).groups - 2

CREATED = b"created context checkpoint "
READ_CREATED = re.compile(rb"\d+ of (\d+) \(pos_min = (-?\d+), pos_max = (-?\d+)").match
READ_CHECKS = re.compile(rb"with \[(-?\d+), (-?\d+)\] against (-?\d+)").findall
