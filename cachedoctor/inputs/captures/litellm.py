"""What LiteLLM logs about a request: ``StandardLoggingPayload`` of its callbacks, rows of its spend logs.

Shapes: docs.litellm.ai/docs/proxy/logging_spec; BerriAI/litellm, SpendLogsPayload in litellm/proxy/_types.py;
spend_tracking_utils.py, which cuts the middle out of a string of more than 2,048 characters before it is stored.
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.inputs.captures.captured import Capture, Captured, counts, encoded, json_of, object_of, seconds
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(
    rb'\A\s*+(?:\[\s*+)?\{(?=.{0,65536}?"(?:standard_logging_(?:object|payload)"\s*:|call_type"\s*:(?=.{0,65536}?"startTime"\s*:)))',
    re.S,
)
_CUT = late(rb"\.\.\. \(litellm_truncated (?:skipped )?\d+ chars")
"""Marker that replaces truncated text; the word alone may be in any prompt."""
_REDACTED = "redacted-by-litellm"
_PROMPT = ("tools", "system", "chat_template_kwargs", "reasoning_effort", "instructions", "cache_salt", "extra_body")
"""Parameters that are part of a prompt, or affect what a cache can reuse."""
_CALLS = ("completion", "responses", "anthropic_messages", "generate_content", "pass_through")
"""Part of the type name of calls that ask for a reply."""
_HINT = "store_prompts_in_spend_logs, and a larger MAX_STRING_LENGTH_PROMPT_IN_DB, keep complete prompts"


def read(values: list[Any]) -> Capture | None:
    """Read rows; None for anything else."""
    known = [row for row in (_row(value) for value in _listed(values)) if row is not None]
    if not known:
        return None
    rows = [row for row in known if _asks_model(row)]
    found = Capture("LiteLLM log", [], hint=_HINT)
    cut = empty = own = 0
    for row in rows:
        if str(row.get("cache_hit")).lower() == "true":
            own += 1
            continue
        body, is_cut = _body(row)
        cut += is_cut
        empty += body is None and not is_cut
        endpoint = "/v1/messages" if "anthropic_messages" in str(row.get("call_type")) else ""
        found.requests.append(Captured(body, endpoint, _answer(row), seconds(row.get("startTime"))))
    for count, words in (
        (cut, "have a prompt truncated by LiteLLM and are left out"),
        (empty, "have no prompt"),
        (own, "were answered from LiteLLM's cache, so no server saw them, and are left out"),
    ):
        if count:
            found.notes.append(f"{count:,} of its {len(rows):,} requests {words}")
    return found.in_order()


def _listed(values: list[Any]) -> list[Any]:
    """Rows in an array, or in the ``data`` of an answer of /spend/logs."""
    if len(values) != 1:
        return values
    only = values[0]
    if isinstance(only, dict) and isinstance(only.get("data"), list):
        return list(only["data"])
    return only if isinstance(only, list) else values


def _row(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    for name in ("standard_logging_object", "standard_logging_payload"):
        if isinstance(value.get(name), dict):
            return dict(value[name])
    known = "call_type" in value and "startTime" in value and ("messages" in value or "request_id" in value)
    return value if known else None


def _asks_model(row: dict[str, Any]) -> bool:
    """Whether a row is a request for a reply; others are embeddings, images, speech."""
    return any(kind in str(row.get("call_type", "completion")) for kind in _CALLS)


def _body(row: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The body as the gateway received it, else built from messages and parameters; and whether it was truncated."""
    sent = object_of(row.get("proxy_server_request"))
    inner = object_of(sent.get("body")) if sent is not None and "body" in sent else sent
    messages = json_of(row.get("messages"))
    if messages is None and isinstance(row.get("messages"), str):
        messages = row["messages"]  # the prompt of a text completion
    made = _made(row, messages)
    for body in (inner, made):
        if body and any(name in body for name in ("messages", "prompt", "input")):
            if _CUT.search(encoded(body)) is not None:
                return None, True
            return body, False
    return None, False


def _made(row: dict[str, Any], messages: Any) -> dict[str, Any] | None:
    kind = str(row.get("call_type"))
    if not messages or messages == _REDACTED or _REDACTED in encoded(messages).decode():
        return None
    field = "prompt" if "text_completion" in kind else "input" if "responses" in kind else "messages"
    if field == "messages" and not isinstance(messages, list):
        return None
    parameters = object_of(row.get("model_parameters")) or {}
    body = {name: parameters[name] for name in _PROMPT if name in parameters}
    body |= {"model": row.get("model"), field: messages}
    user, session = row.get("end_user"), row.get("session_id")
    body |= {"user": user} if isinstance(user, str) and user else {}
    return body | ({"session_id": session} if isinstance(session, str) and session else {})


def _answer(row: dict[str, Any]) -> bytes:
    """Counts of the provider, if there are any; else only the prompt's tokens."""
    metadata, response = object_of(row.get("metadata")) or {}, object_of(row.get("response")) or {}
    for usage in (metadata.get("usage_object"), response.get("usage")):
        if isinstance(usage, dict) and usage:
            return encoded({"model": row.get("model"), "usage": usage})
    return counts(row.get("prompt_tokens") or None, None, row.get("model"))
