"""Kinds of requests in words: their share of the prompt time, and the setting that moves or shrinks them."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.knowledge import clients
from cachedoctor.model.whatif import KindName, RequestKind
from cachedoctor.report.words.numbers import count, duration, percent

_ADVICE: dict[KindName, str] = {
    "summary": (
        "request the summary at the end of the conversation itself, with the same system prompt and tools, and "
        "compact rarely"
    ),
    "autocomplete": "give completions their own server or slot",
    "tool search": "send the same system prompt and tools as the turns, with the question last",
}


def kinds(found: Sequence[RequestKind]) -> list[str]:
    """Say of each kind what share of the prompt time it takes, and of those beside the turns what to do."""
    whole = sum(row.computed_tokens for row in found)
    spent = sum(row.ms or 0.0 for row in found)
    lines = []
    for row in found:
        part, of = (row.ms, spent) if row.ms is not None and spent else (row.computed_tokens, whole)
        time = "" if row.ms is None else f", {duration(row.ms)}"
        words = f"{row.kind}: {percent(part, of)} of the prompt time ({count(row.requests, 'request')}{time})"
        if row.displaced_tokens:
            words += f"; without these requests the others would reuse {count(row.displaced_tokens, 'token')} more"
        step = _step(row.kind)
        lines.append(f"{words}; {step}" if step else words)
    return lines


def _step(kind: KindName) -> str:
    if kind == "title":
        return (
            "send these requests to a separate small model, or switch them off "
            f"({clients.ways_to_stop('side-requests')})"
        )
    return _ADVICE.get(kind, "")
