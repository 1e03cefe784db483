"""Lines that nearly always follow each other, read in one match: slot choice and launch, prompt length, batches,
checkpoints looked at, timings and release; a whole request where nothing else stands in between.

A shortcut for speed only: where the lines stand otherwise, the catalogue's rows read them one by one, with the same
result.
"""

from __future__ import annotations

import re

# Groups 1 and 2 are slot and task, from the slot prefix that stands before PATTERN.
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, TASK = range(3, 8)
"""Groups of a slot choice."""
CHOICE_TAIL = 8
LAUNCHED = 20
LAUNCH_TAIL = 21
BATCHES_ALONE = 33
CHECKING = 36
END_ALONE = 37

# Within a tail: prompt length (2 groups), batches (3), end (7).
CONTEXT, PROMPT, BATCHES, END = 0, 1, 2, 5
# Within batches: the word "cached", the count, the further lines.
CACHED, REST = 1, 2
# Within an end: header line, prompt ms, processed, reply ms, generated, released, truncated.

# No looser than the rows: what one of them would not believe, must not be believed because of where it stands.
# What may be missing is a branch, not an optional repeat, which copies all the groups matched so far.
_STAMP = rb"(?:\d{1,9}\.\d\d\.\d\d\d\.\d\d\d (?:[IW] |)|[IW] |)"
_SAME = _STAMP + rb"slot +[^\s:|]*: id +\1 \| task "
_RATE = rb" tokens \( *\d+\.\d+ ms per token, +\d+\.\d+ tokens per second\)\n"


def _batches(task: bytes) -> bytes:
    """The first batch and the lines of later ones; three groups."""
    further = (
        rb"(?:(?:cached )?n_tokens = \d{1,10}, memory_seq_rm \[\d{1,15}, end\)"
        rb"|created context checkpoint \d{1,10} of \d{1,10} \([^\n|]*"
        rb"|prompt processing [^\n]*|prompt done, [^\n]*)"
    )
    first = rb"(cached )?n_tokens = (\d{1,10}), memory_seq_rm \[\d{1,15}, end\)"
    return first + rb"((?:\n" + _SAME + task + rb" \| " + further + rb")*)(?=\n)"


def _end(task: bytes) -> bytes:
    """Timings and release; seven groups."""
    timing = rb"(?:" + _SAME + task + rb" \| |) *"
    return (
        rb"(\n?)prompt eval time = +(\d+\.\d+) ms / +(\d{1,10})" + _RATE
        + timing + rb"eval time = +(\d+\.\d+) ms / +(\d{1,10})" + _RATE
        + timing + rb"total time = +\d+\.\d+ ms / +\d{1,10} tokens\n"
        + rb"(?:" + _SAME + task + rb" \| +graphs reused = [^\n]*\n|)"
        + _SAME + task + rb" \| stop processing: n_tokens = (\d{1,10}), truncated = ([01])(?=\n)"
    )  # fmt: skip


def _tail(task: bytes) -> bytes:
    """What may follow a launch at once: prompt length, batches, end; twelve groups."""
    same = rb"\n" + _SAME + task + rb" \| "
    prompt = rb"new prompt, n_ctx_slot = (\d{1,10}), n_keep = \d{1,15}, task\.n_tokens = (\d{1,10})(?=\n)"
    return b"".join(rb"(?:" + same + part + rb"|)" for part in (prompt, _batches(task), _end(task)))


_CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_)?sim_best = (\d+\.\d+) \(> \d+\.\d+ thold\), f_keep = (\d+\.\d+)"
    + rb"|LRU, t_last = (-?\d{1,15}))\n"
    + rb"(?:" + _SAME + rb"-1 \| sampler chain: [^\n]*\n|)"
    + _SAME + rb"(\d{1,15}) \| processing task, is_child = 0(?=\n)" + _tail(rb"\7")
)  # fmt: skip
_LAUNCH = rb"processing task, is_child = (0)(?=\n)" + _tail(rb"\2")
_CHECK = rb"hecking checkpoint with \[-?\d{1,15}, -?\d{1,15}\] against -?\d{1,15}\.\.\."
_CHECKS = rb"(C|c)" + _CHECK + rb"(?:\n" + _SAME + rb"\2 \| [Cc]" + _CHECK + rb")*(?=\n)"

PATTERN = rb"(?:" + b"|".join((_CHOICE, _LAUNCH, _batches(rb"\2"), _CHECKS, _end(rb"\2"))) + rb")"
"""Stands behind the slot prefix."""

GROUPS = END_ALONE + 7 - NEW_NAME
"""How many it has."""

SAMPLER = b"sampler chain: "
CREATED = b"created context checkpoint "
READ_CREATED = re.compile(rb"\d{1,10} of (\d{1,10}) \(pos_min = (-?\d{1,15}), pos_max = (-?\d{1,15})").match
READ_PROGRESS = re.compile(
    rb"prompt processing( progress|), n_tokens = +(\d{1,15}), [^\n]*?progress = (\d{1,15}\.\d{1,15})"
).search
READ_CHECK = re.compile(rb"with \[(-?\d{1,15}), (-?\d{1,15})\] against (-?\d{1,15})").search
