"""Session events of Copilot (its SDK, ``events.jsonl`` of its CLI): counts of each call, and why a prefix was lost.

Shape: ``nodejs/src/generated/session-events.ts`` and ``rust/src/generated/session_events.rs`` of github/copilot-sdk
(commit cc0438d6). A line is an event with ``type``, ``data``, ``id`` and ``parentId``; ``assistant.usage`` has the
counts of a call, ``prompt_cache_break`` what was lost. No event holds a prompt, and the CLI does not store the counts.
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.inputs.captures.captured import Capture, Captured, encoded, seconds
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(
    rb'\A\s*\{(?=.{0,65536}?"parentId"\s*:)(?=.{0,65536}?"type"\s*:\s*"[a-z_]+[."])(?=.{0,65536}?"data"\s*:)', re.S
)
_USAGE, _BREAK = "assistant.usage", "prompt_cache_break"
_NEAR = 8
"""Calls before and after a loss that are searched for the one with its counts: sub-agents send requests in parallel."""

Event = dict[str, Any]


def read(values: list[Any]) -> Capture | None:
    """Read the events of a session; None for anything else, and for a session without counts and losses."""
    events = [value for value in values if isinstance(value, dict)]
    if not events or len(events) < len(values) or not all(_is_event(event) for event in events):
        return None
    told = [event for event in events if event["type"] in (_USAGE, _BREAK)]
    if not told:
        return None
    calls = [event for event in told if event["type"] == _USAGE]
    claims: dict[int, Event] = {}
    alone: list[Event] = []
    before = 0
    for event in told:
        if event["type"] == _USAGE:
            before += 1
            continue
        at = _call_of(event, calls, before, claims)
        if at is None:
            alone.append(event)
        else:
            claims[at] = event
    found = Capture("Copilot session", [], ["Copilot events contain counts but no prompts"])
    found.requests = [_captured(call, claims.get(at)) for at, call in enumerate(calls)]
    found.requests += [_captured(None, event) for event in alone]
    return found


def _call_of(lost: Event, calls: list[Event], before: int, taken: dict[int, Event]) -> int | None:
    """The nearest call that reused as many tokens as survived; ``before``: calls before the event."""
    survived = lost["data"].get("survivedTokens")
    near = range(max(0, before - _NEAR), min(len(calls), before + _NEAR))
    fitting = [at for at in near if at not in taken and calls[at]["data"].get("cacheReadTokens") == survived]
    return min(fitting, key=lambda at: abs(at - (before - 1)), default=None)


def _is_event(event: Event) -> bool:
    return isinstance(event.get("type"), str) and isinstance(event.get("data"), dict) and "parentId" in event


def _captured(call: Event | None, lost: Event | None) -> Captured:
    answer: Event = {}
    if call is not None:
        data = call["data"]
        answer = {
            "model": data.get("model"),
            "usage": {
                "prompt_tokens": data.get("inputTokens"),
                "prompt_tokens_details": {"cached_tokens": data.get("cacheReadTokens")},
            },
        }
    if lost is not None:
        data = lost["data"]
        reason = {"type": data.get("primaryReason"), "cache_missed_input_tokens": data.get("shortfallTokens")}
        answer["diagnostics"] = {"by": "Copilot", "cache_miss_reason": reason}
    event = call or lost or {}
    return Captured(None, "", encoded(answer), seconds(event.get("timestamp")))
