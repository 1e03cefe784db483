"""Requests in the log of vLLM (``--enable-log-requests``): the prompt as the model saw it, after the chat template.

``Received request chatcmpl-1: prompt: '<|im_start|>...', params: SamplingParams(...)`` up to 0.11.0, later at the debug
level ``Request chatcmpl-1 details: prompt: '...', prompt_token_ids: [...]`` (vllm/entrypoints/logger.py). It has no
counts of what was reused, and no salt. ``--max-log-len`` cuts text and ids at as many characters and ids, unmarked.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from cachedoctor.inputs.captures.captured import Capture, Captured
from cachedoctor.knowledge import literals
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(r"Received request [^\s:]+: prompt: |Request [^\s:]+ details: prompt: ")
_LINE = late(
    r"^[^'\"\n]*?(?:Received request [^\s:]+|Request [^\s:]+ details): prompt: "
    r"(?P<printed>(?P<none>None)|['\"])(?P<rest>[^\n]*)",
    re.M,
)
_IDS = late(r"prompt_token_ids: \[((?:[0-9]{1,9}(?:, [0-9]{1,9})*)?)\]")
_CUT_AT = late(r"max_log_len['\"]?\s*[:=]\s*(\d{1,9})")
_SUSPICIOUS = 3
"""Number of prompts of the longest length, if it is a round number, from which they are taken as truncated."""
_ROUND = 50
_SAME = 16
"""Minimum length at which a prompt with equally many characters and ids is taken as truncated: the log limits both."""


def read(text: str) -> Capture | None:
    """Read the prompts of a log; None if it has none."""
    found = [_prompt(line) for line in _LINE.finditer(text)]
    if not found:
        return None
    whole = [one for one in found if one is not None]
    most = _cut_at(text, whole)
    kept = [body for body, length in ((body, length) for body, length, _ in whole) if most is None or length < most]
    capture = Capture(
        "vLLM log", [Captured({"prompt": prompt}) for prompt in kept],
        hint="--enable-log-requests at the debug level, without --max-log-len, logs complete prompts",
    )  # fmt: skip
    if len(kept) < len(found):
        cut = f"{len(found) - len(kept):,} of its {len(found):,} prompts"
        capture.notes.append(f"{cut} are truncated, or look truncated (--max-log-len, broken lines), and are left out")
    return capture


def _prompt(line: re.Match[str]) -> tuple[Any, int, int] | None:
    """A prompt as text or ids, its length, and how many ids are printed beside it; None for a torn one."""
    printed = line["printed"] + line["rest"]
    ids = _IDS.search(line["rest"])
    numbers = [int(one) for one in ids[1].split(", ")] if ids is not None and ids[1] else []
    if line["none"]:
        return (numbers, len(numbers), 0) if numbers else None
    text = literals.string(printed)
    return None if text is None else (text, len(text), len(numbers))


def _cut_at(text: str, prompts: list[tuple[Any, int, int]]) -> int | None:
    """Characters at which the log truncates prompts; None if nothing shows that it does."""
    said = _CUT_AT.search(text)
    if said is not None:
        return int(said[1])
    for _, length, ids in prompts:
        if length == ids >= _SAME:
            return length
    longest = max((length for _, length, _ in prompts), default=0)
    many = Counter(length for _, length, _ in prompts)[longest]
    return longest if many >= _SUSPICIOUS and longest and longest % _ROUND == 0 else None
