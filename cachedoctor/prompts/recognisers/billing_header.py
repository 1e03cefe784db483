"""The billing header of Claude Code. Knows its shape; knows no client switch and no other text."""

from __future__ import annotations

import re

from cachedoctor.prompts.recognisers.base import Difference, Recognition

NAME = "x-anthropic-billing-header:"
HEADER = re.compile(NAME + r"(?:[ \t]*[A-Za-z_][\w-]*=[^;\s]*;)*(?:[ \t]*[A-Za-z_][\w-]*=[^;\s]*)?")
_FIELD = re.compile(r"(?<![\w-])([A-Za-z_][\w-]*)=([^;\s]*)")
_REACH = 1000
"""Code points before the offset in which the header must begin; the longest one seen has 300."""
_WHY = {
    "cch": "cch is a checksum of the request, new in every one",
    "cc_version": "the suffix of cc_version is made from the first user message: new per conversation and subagent",
    "cc_prev_req": "cc_prev_req names the previous request, so it is new in every turn",
    "cc_prompt_id": "cc_prompt_id is new for every user prompt",
    "cc_entrypoint": "cc_entrypoint says how Claude Code was started: two programs share this server",
    "cc_workload": "cc_workload says what the request is for",
    "cc_is_subagent": "cc_is_subagent is there in requests of subagents only",
}


def billing_header(d: Difference) -> Recognition | None:
    """The texts part inside the header, or only one of them has it there."""
    a, b = _header(d, d.a.text), _header(d, d.b.text)
    if a is None and b is None:
        return None
    if a is None or b is None:
        side = "first" if b is None else "second"
        text = f"only the {side} prompt has a billing header here"
        return Recognition("billing-header", a or "", b or "", text)
    values_a, values_b = dict(_FIELD.findall(a)), dict(_FIELD.findall(b))
    for name in dict.fromkeys([*values_a, *values_b]):
        old, new = values_a.get(name), values_b.get(name)
        if old != new:
            why = _WHY.get(name, f"{name} changed")
            if old is None or new is None:
                why = f"only one of the prompts has {name} in its billing header"
            return Recognition("billing-header", old or "", new or "", why, name)
    if a == b:
        return None  # equal headers at the same place: the difference is right behind them
    return Recognition("billing-header", a, b, "the fields of the billing header stand in another order")


def _header(d: Difference, text: str) -> str | None:
    start = text.rfind(NAME, max(0, d.offset - _REACH), d.offset + len(NAME))
    if start < 0 or start > d.offset:
        return None
    match = HEADER.match(text, start, start + 2 * _REACH)
    return match.group() if match and d.offset <= match.end() else None
