"""Error texts inside ``task id = N, error: ...``: the prompt that did not fit. Knows these texts only."""

from __future__ import annotations

import re

from cachedoctor.engines.base import Event
from cachedoctor.model import Mark, Request

# b7710 and newer: "request (5887 tokens) exceeds the available context size (4096 tokens), try increasing it";
# older builds say the same without numbers.
_NUMBERS = re.compile(r"\((\d{1,15}) tokens\)[^(]*\((\d{1,15}) tokens\)")
_OVERLONG = re.compile(r"exceeds? the available context size|larger than the max context size")


def parse_error(request: Request, event: Event) -> None:
    """Set the error of a request; for an over-long prompt its length and the limit as well."""
    text = event.fields["error"]
    request.error = "context-overflow" if _OVERLONG.search(text) else "other"
    request.last_line = event.line
    request.marks["error"] = Mark(event.line, event.text)
    numbers = _NUMBERS.search(text)
    if numbers and request.error == "context-overflow":
        request.error_tokens, request.error_limit = int(numbers.group(1)), int(numbers.group(2))
