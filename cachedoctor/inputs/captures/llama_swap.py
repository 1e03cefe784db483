"""Captures of llama-swap (``captureBuffer``), as ``GET /api/captures/ID`` gives them, one or many.

Shape: mostlygeek/llama-swap, ReqRespCapture in proxy/metrics_monitor.go, later internal/server: bodies are base64,
answers without their Content-Encoding; ids count answers, so that order is the order of ending.
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.inputs.captures.captured import Capture, Captured, is_llm, is_prompt, object_of, telling, text_of
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(rb'\A\s*+(?:\[\s*+)?\{(?=.{0,65536}?"req_path"\s*:)(?=.{0,65536}?"(?:req_body|has_capture)"\s*:)', re.S)
_HINT = "GET /api/captures/ID of llama-swap gives a request with its body; captureBuffer must be above 0"


def read(values: list[Any]) -> Capture | None:
    """Read captures; None of anything else."""
    rows = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if not rows or not all(isinstance(row, dict) and isinstance(row.get("req_path"), str) for row in rows):
        return None
    if not any("req_body" in row for row in rows):
        return _activity() if any("has_capture" in row for row in rows) else None
    found = Capture("llama-swap captures", [], hint=_HINT)
    if all(isinstance(row.get("id"), int) for row in rows):
        rows = sorted(rows, key=lambda row: int(row["id"]))
    unread = 0
    for row in rows:
        body = object_of(text_of(row.get("req_body"), True) or None)
        endpoint = row["req_path"].partition("?")[0]
        if not (is_llm(endpoint) if body is None else is_prompt(body, endpoint)):
            continue  # an embedding, a list of models
        unread += body is None
        found.requests.append(Captured(body, endpoint, telling(text_of(row.get("resp_body"), True))))
    if unread:
        found.notes.append(f"{unread:,} of its requests to a model have no readable body")
    return found


def _activity() -> Capture:
    """Its list of what happened, which has no bodies; its counts mean other things for other servers."""
    return Capture("llama-swap's activity, which has no bodies", [], hint=_HINT)
