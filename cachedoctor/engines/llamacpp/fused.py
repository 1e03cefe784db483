"""Lines that nearly always follow each other, read in one match: slot choice and launch, prompt length, batches,
checkpoints looked at, timings and release; a whole request where nothing else stands in between.

A shortcut for speed only: where the lines stand otherwise, the catalogue's rows read them one by one, with the same
result. Knows the wording of these few lines.
"""

from __future__ import annotations

import re

# Groups 1 and 2 are slot and task, from the slot prefix that stands before PATTERN.
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, TASK = range(3, 8)
"""Groups of a slot choice."""
CHOICE_TAIL = 8
LAUNCHED = 19
LAUNCH_TAIL = 20
BATCHES_ALONE = 31
CHECKING = 34
END_ALONE = 35

# Within a tail: prompt length (2 groups), batches (3), end (6).
CONTEXT, PROMPT, BATCHES, END = 0, 1, 2, 5
# Within batches: the word "cached", the count, the further lines.
CACHED, REST = 1, 2
# Within an end: header line, prompt ms, processed, generated, released, truncated.

# No optional group: each try of one copies all the groups matched so far.
_STAMP = rb"[\d.]*+ ?+[IW]?+ ?+(?<=[ \n])"
_SAME = _STAMP + rb"slot +[^\s:]*: id +\1 \| task "
_RATE = rb" tokens \([ \d.]+ ms per token, +[\d.]+ tokens per second\)\n"


def _batches(task: bytes) -> bytes:
    """The first batch and the lines of later ones; three groups."""
    further = (
        rb"(?:(?:cached )?n_tokens = \d+, memory_seq_rm \[\d+, end\)|created context checkpoint \d+ of \d+ \([^\n]*"
        rb"|prompt processing [^\n]*|prompt done, [^\n]*)"
    )
    first = rb"(cached )?n_tokens = (\d+), memory_seq_rm \[\d+, end\)"
    return first + rb"((?:\n" + _SAME + task + rb" \| " + further + rb")*)(?=\n)"


def _end(task: bytes) -> bytes:
    """Timings and release; six groups."""
    timing = rb"(?:" + _SAME + task + rb" \| )? *"
    return (
        rb"(\n?)prompt eval time = +([\d.]+) ms / +(\d+)" + _RATE
        + timing + rb"eval time = +[\d.]+ ms / +(\d+)" + _RATE
        + timing + rb"total time = [^\n]*\n"
        + rb"(?:" + _SAME + task + rb" \| +graphs reused = [^\n]*\n)?"
        + _SAME + task + rb" \| stop processing: n_tokens = (\d+), truncated = ([01])(?=\n)"
    )  # fmt: skip


def _tail(task: bytes) -> bytes:
    """What may follow a launch at once: prompt length, batches, end; eleven groups."""
    same = rb"\n" + _SAME + task + rb" \| "
    prompt = rb"new prompt, n_ctx_slot = (\d+), n_keep = \d+, task\.n_tokens = (\d+)(?=\n)"
    return b"".join(rb"(?:" + same + part + rb")?" for part in (prompt, _batches(task), _end(task)))


_CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_)?sim_best = ([\d.]+) \(> [\d.]+ thold\), f_keep = ([\d.]+)"
    + rb"|LRU, t_last = (-?\d+))\n"
    + rb"(?:" + _SAME + rb"-1 \| sampler chain: [^\n]*\n)?"
    + _SAME + rb"(\d+) \| processing task, is_child = 0(?=\n)" + _tail(rb"\7")
)  # fmt: skip
_LAUNCH = rb"processing task, is_child = (0)(?=\n)" + _tail(rb"\2")
_CHECK = rb"hecking checkpoint with \[-?\d+, -?\d+\] against -?\d+\.\.\."
_CHECKS = rb"(C|c)" + _CHECK + rb"(?:\n" + _SAME + rb"\2 \| [Cc]" + _CHECK + rb")*(?=\n)"

PATTERN = rb"(?:" + b"|".join((_CHOICE, _LAUNCH, _batches(rb"\2"), _CHECKS, _end(rb"\2"))) + rb")"
"""Stands behind the slot prefix."""

GROUPS = re.compile(rb"()()" + PATTERN).groups - 2

SAMPLER = b"sampler chain: "
CREATED = b"created context checkpoint "
READ_CREATED = re.compile(rb"\d+ of (\d+) \(pos_min = (-?\d+), pos_max = (-?\d+)").match
READ_SIZE = re.compile(rb"[^\n]*, size = +([\d.]+) MiB\)").match
READ_CHECKS = re.compile(rb"with \[(-?\d+), (-?\d+)\] against (-?\d+)").findall
