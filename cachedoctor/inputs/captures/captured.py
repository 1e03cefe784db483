"""A request as another program recorded it, and the JSON values of a recording."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import CacheDoctorError

MAX_DEPTH = 200
"""Levels of JSON nesting; a tool schema has a dozen. Bounds every recursion over a request."""
_JSON_START = late(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:\{\s*"|\]\s*$|\[+\s*$))')


def values_of(text: str, path: str) -> list[Any] | None:
    """Give the values of a file; None when it is plain text.

    Raises:
        CacheDoctorError: what begins like JSON is broken, or nested too deeply.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    decoder, text = json.JSONDecoder(), sound_json(text)
    values: list[Any] = []
    end = len(text.rstrip())
    at = len(text) - len(text.lstrip())
    try:
        while at < end:
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            while at < end and text[at] in " \t\r\n,":
                at += 1
    except json.JSONDecodeError as error:
        # "[INST] ...", "[1] ..." and "{{user}}: ..." are prompts; what begins with a key was meant as JSON.
        if not _JSON_START.match(text[:4096]):
            return None
        hint = "the file may be incomplete" if error.pos >= end - 1 else "save the server's or proxy's JSON unchanged"
        message = f"{path}: broken JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise CacheDoctorError(message, hint) from error
    except RecursionError as error:
        raise too_deep(path) from error
    except ValueError as error:  # an integer of thousands of digits
        raise CacheDoctorError(f"{path}: broken JSON: a number is too long") from error
    if any(depth_of(value) > MAX_DEPTH for value in values):
        raise too_deep(path)
    return values


def too_deep(path: str) -> CacheDoctorError:
    """The error about a value that is nested too deeply."""
    return CacheDoctorError(
        f"{path}: JSON is nested too deeply", f"the request is nested more than {MAX_DEPTH} levels deep"
    )


def depth_of(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, level = stack.pop()
        if level > deepest:
            deepest = level
            if deepest > MAX_DEPTH:
                break
        if isinstance(item, dict):
            stack.extend((inner, level + 1) for inner in item.values() if isinstance(inner, dict | list))
        elif isinstance(item, list):
            stack.extend((inner, level + 1) for inner in item if isinstance(inner, dict | list))
    return deepest


_TELLS = late(r'"(?:usage|timings|meta_info)"\s*:')
_KEPT = ("id", "type", "model", "usage", "meta_info", "timings", "stop", "diagnostics")
"""Keys of an answer that show the prompt length, and which request it belongs to."""
_ENDS = 8
"""Lines with token counts kept from the start of a stream, and from its end: some servers print counts in every
line."""
_LLM = ("/completion", "/messages", "/responses", "/generate", "/chat")


class Captured(msgspec.Struct):
    """One request."""

    body: dict[str, Any] | None
    """None if the recording does not contain its prompt."""
    endpoint: str = ""
    """Path of the address, without the part after ``?``, which may be a key."""
    answer: bytes = b""
    """The parts of the answer that may show the prompt length: JSON, or the stream's lines with counts."""
    sent: float | None = None
    """Seconds since 1970; None if the recording does not show it."""
    is_whole: bool = True
    """False if parts of the prompt are known to be missing: its length is then not the request's length."""


class Capture(msgspec.Struct):
    """Content of one file."""

    kind: str
    """Name of the program or format that wrote it, for messages: ``HAR``."""
    requests: list[Captured]
    """In the order in which they were sent, as far as the recording shows it."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What the recording does not contain, a sentence each."""
    hint: str = ""
    """How to record more."""

    def in_order(self) -> Capture:
        """Sort by the time of sending, where every request has one."""
        if all(one.sent is not None for one in self.requests):
            self.requests.sort(key=lambda one: one.sent or 0.0)
        return self


def json_of(text: Any) -> Any:
    """Parse JSON in a string; any other value is returned unchanged, and None for a string that is not JSON."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(sound_json(text))
    except (ValueError, RecursionError):
        return None


def object_of(text: Any) -> dict[str, Any] | None:
    """Read a JSON object; None for anything else."""
    found = json_of(text)
    return found if isinstance(found, dict) else None


def text_of(text: Any, is_base64: bool) -> str:
    """Decode a base64 string; empty if it is not one."""
    if not isinstance(text, str):
        return ""
    if not is_base64:
        return text
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def seconds(value: Any) -> float | None:
    """Seconds since 1970 of a number or of ISO 8601 text; None for anything else.

    Text without a zone is UTC.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e11 else None
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        found = datetime.fromisoformat(value.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def telling(answer: str) -> bytes:
    """The parts of an answer, whole or streamed, that may show the length of its prompt; empty if there are none."""
    if not _TELLS.search(answer):
        return b""
    found = object_of(answer) if answer.lstrip()[:1] == "{" else None
    if found is not None:
        return encoded({key: found[key] for key in _KEPT if key in found})
    lines = [line for line in map(str.strip, answer.split("\n")) if line.startswith("data:") and _TELLS.search(line)]
    kept = lines if len(lines) <= 2 * _ENDS else [*lines[:_ENDS], *lines[-_ENDS:]]
    return "\n".join(kept).encode("utf-8", "replace")


def counts(prompt: Any, cached: Any = None, model: Any = None) -> bytes:
    """Write counts in the form of an answer; empty if the first is not a count."""
    if not _is_count(prompt):
        return b""
    usage: dict[str, Any] = {"prompt_tokens": prompt}
    if _is_count(cached):
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return encoded({"model": model, "usage": usage} if isinstance(model, str) else {"usage": usage})


def encoded(value: Any) -> bytes:
    """Write JSON."""
    return json.dumps(value, separators=(",", ":")).encode("utf-8", "replace")


def is_llm(endpoint: str) -> bool:
    """Whether an address accepts prompts."""
    return any(part in endpoint for part in _LLM)


def is_prompt(body: dict[str, Any], endpoint: str) -> bool:
    """Whether a body is a request to a model; pages post many things under the same names."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return bool(messages) and all(isinstance(one, dict) and "role" in one for one in messages)
    if "prompt" in body:
        return "/completion" in endpoint or "/generate" in endpoint
    return "/responses" in endpoint and ("input" in body or "instructions" in body)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
