"""Lines that nearly always follow each other, read in one match: slot choice and launch, the batches of a prompt,
the checkpoints looked at, timings and release.

A shortcut for speed only: where the lines stand otherwise, the catalogue's rows read them one by one, with the same result.
Knows the wording of these few lines.
"""

from __future__ import annotations

import re

_STAMP = rb"(?:[\d.]{12,} )?(?:[IW] )?"
_SAME = _STAMP + rb"slot +[^\s:]*: id +\1 \| task "
_TIMING = rb"(?:" + _SAME + rb"\2 \| )? *"

CHOICE = (
    rb"selected slot by (?:LCP similarity, (f_)?sim_best = ([\d.]+) \(> [\d.]+ thold\), f_keep = ([\d.]+)|LRU, t_last = (-?\d+))\n"
    + _SAME + rb"(\d+) \| processing task, is_child = 0(?=\n)"
)  # fmt: skip

END = (
    rb"(\n?)prompt eval time = +([\d.]+) ms / +(\d+) tokens \([ \d.]+ ms per token, +[\d.]+ tokens per second\)\n"
    + _TIMING + rb"eval time = +[\d.]+ ms / +(\d+) tokens \([ \d.]+ ms per token, +[\d.]+ tokens per second\)\n"
    + _TIMING + rb"total time = [^\n]*\n"
    + rb"(?:" + _SAME + rb"\2 \| +graphs reused = [^\n]*\n)?"
    + _SAME + rb"\2 \| stop processing: n_tokens = (\d+), truncated = ([01])(?=\n)"
)  # fmt: skip

_BATCH = rb"(?:cached )?n_tokens = \d+, memory_seq_rm \[\d+, end\)"
_AFTER = rb"(?:" + _BATCH + rb"|created context checkpoint \d+ of \d+ \([^\n]*|prompt processing [^\n]*|prompt done, [^\n]*)"

BATCHES = rb"(cached )?n_tokens = (\d+), memory_seq_rm \[\d+, end\)((?:\n" + _SAME + rb"\2 \| " + _AFTER + rb")*)(?=\n)"

_CHECK = rb"hecking checkpoint with \[-?\d+, -?\d+\] against -?\d+\.\.\."

CHECKS = rb"(C|c)" + _CHECK + rb"(?:\n" + _SAME + rb"\2 \| [Cc]" + _CHECK + rb")*(?=\n)"

PATTERN = rb"(?:" + CHOICE + rb"|" + BATCHES + rb"|" + CHECKS + rb"|" + END + rb")"
"""Stands behind the slot prefix, whose groups 1 and 2 are slot and task."""

GROUPS = re.compile(rb"()()" + PATTERN).groups - 2

# positions in the groups of PATTERN
NEW_NAME, SIMILARITY, F_KEEP, T_LAST, TASK = range(5)
CACHED_WORD, CACHED, REST = range(5, 8)
CHECKING = 8
HEADER, PROMPT_MS, PROCESSED, GENERATED, RELEASED, TRUNCATED = range(9, 15)

CREATED = b"created context checkpoint "

READ_CHECKS = re.compile(rb"with \[(-?\d+), (-?\d+)\] against (-?\d+)").findall
