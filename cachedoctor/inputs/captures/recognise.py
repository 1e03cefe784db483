"""Which program wrote a recording, by its content: one row a form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cachedoctor.inputs.captures import (
    copilot_events,
    har,
    litellm,
    llama_swap,
    otel_spans,
    sglang_requests,
    transcripts,
    vllm_requests,
)
from cachedoctor.inputs.captures.captured import Capture
from cachedoctor.knowledge.late_patterns import late

JSON_FORMS = (har, llama_swap, litellm, otel_spans, transcripts, copilot_events)
LOG_FORMS = (sglang_requests, vllm_requests)
HEAD = 1 << 17
"""Bytes at the beginning of a file that show whether it is a recording."""

_LOG_BEGINS = late(r'\s*(?:[^\s\[{<]|\[\d{4}-|\{"timestamp": "[^"\n]*", "event": ")')
"""A log begins like this; JSON, and a prompt after a chat template, do not."""
_LOG_LINE = late(
    r'(?:INFO|DEBUG|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d |\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|"event": "request\.'
)
_LINES = 200
_SHARE = 0.2
"""Share of the first lines that look like log lines; in a prompt with a pasted log they are fewer, or come later."""


def of_values(values: list[Any]) -> Capture | None:
    """Read the JSON values of a file; None for what none of these programs writes."""
    return next((found for form in JSON_FORMS if (found := form.read(values)) is not None), None)


def of_log(text: str) -> Capture | None:
    """Read the requests in the log of a server; None for any other text, and for a log that has none."""
    if not has_requests(text):
        return None
    return next((found for form in LOG_FORMS if (found := form.read(text)) is not None), None)


def has_requests(text: str) -> bool:
    """Whether a text is the log of a server that prints requests."""
    return _is_log(text) and any(form.LOOKS.search(text) for form in LOG_FORMS)


def looks(head: bytes) -> bool:
    """Whether a file begins like a recording in JSON; ``head`` are its first ``HEAD`` bytes."""
    return any(form.LOOKS.match(head) for form in JSON_FORMS)


def _is_log(text: str) -> bool:
    if not _LOG_BEGINS.match(text[:4096]):
        return False
    first = list(_first_lines(text))
    return sum(_LOG_LINE.search(line) is not None for line in first) >= _SHARE * len(first)


def _first_lines(text: str) -> Iterator[str]:
    at = seen = 0
    while at < len(text) and seen < _LINES:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at : min(end, at + 512)]
        if line.strip():
            seen += 1
            yield line
        at = end + 1
