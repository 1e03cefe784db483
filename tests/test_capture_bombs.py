"""Recordings made to explode, by nesting, packing, numbers or counts: one line, or the requests that are in them.

Each is refused or read whole; the result is at most a few times the input.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs

MANY = 20_000


def attribute(key: str, text: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": text}}


def span(*attributes: dict[str, Any], **more: object) -> dict[str, Any]:
    named = attribute("gen_ai.operation.name", "chat")
    return {"traceId": "1", "spanId": "1", "name": "chat", "attributes": [named, *attributes], **more}


def spans(*found: object) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]})


def quoted(times: int) -> str:
    text = '[{"role":"user","content":"hi"}]'
    for _ in range(times):
        text = json.dumps(text)
    return text


def nested(depth: int) -> str:
    value = '{"arrayValue":{"values":[' * depth + '{"stringValue":"x"}' + "]}}" * depth
    return spans(span({"key": "gen_ai.input.messages", "value": "@"})).replace('"@"', value)


def of_inference(*attributes: dict[str, Any]) -> str:
    return spans(span(attribute("openinference.span.kind", "LLM"), *attributes))


MESSAGES = "gen_ai.input.messages"
PROMPT, BODY = "gen_ai.prompt", base64.b64encode(b'{"messages":[{"role":"user","content":"hi"}]}').decode()
PACKED = base64.b64encode(gzip.compress(b'{"messages":[' + b" " * 30_000_000)).decode()


def capture(**parts: object) -> dict[str, object]:
    """What llama-swap answers to ``GET /api/captures/1``."""
    return {
        "id": 1, "req_path": "/v1/chat/completions", "req_headers": {"content-type": "application/json"},
        "req_body": BODY, "resp_headers": {}, "resp_body": "", **parts,
    }  # fmt: skip


BOMBS: dict[str, Callable[[], str]] = {
    "OTLP: values in values": lambda: nested(20_000),
    "OTLP: JSON in JSON in JSON": lambda: spans(span(attribute(MESSAGES, quoted(14)))),
    "OTLP: brackets that stay open": lambda: spans(span(attribute(MESSAGES, "[" * 500_000))),
    "OTLP: brackets that are closed": lambda: spans(span(attribute(MESSAGES, "[" * 50_000 + "]" * 50_000))),
    "OTLP: many attributes": lambda: spans(span(*[attribute(f"{PROMPT}.{n}.content", "x") for n in range(MANY)])),
    "OTLP: a message of a huge number": lambda: spans(
        span(*[attribute(f"{PROMPT}.{10**n}.content", "x") for n in range(300)])
    ),
    "OTLP: many spans": lambda: spans(*[span()] * MANY),
    "OTLP: many events": lambda: spans(span(events=[{"name": "gen_ai.user.message", "attributes": []}] * MANY)),
    "OTLP: a clock of many digits": lambda: spans(span()).replace('"1"', "9" * 200_000),
    "OpenInference: a message of a huge number": lambda: of_inference(
        *[attribute(f"llm.input_messages.{9**n}.message.content", "x") for n in range(200)]
    ),
    "OpenInference: many calls": lambda: of_inference(
        *[
            attribute(f"llm.input_messages.0.message.tool_calls.{n}.tool_call.function.arguments", "{}")
            for n in range(MANY)
        ]
    ),
    "llama-swap: a packed request": lambda: json.dumps(
        capture(req_body=PACKED, req_headers={"content-encoding": "gzip"})
    ),
    "llama-swap: a packed answer": lambda: json.dumps(
        capture(resp_body=PACKED, resp_headers={"content-encoding": "gzip"})
    ),
    "llama-swap: brackets": lambda: json.dumps(capture(req_body=base64.b64encode(b"[" * 500_000).decode())),
    "llama-swap: base64 in base64": lambda: json.dumps(capture(req_body=base64.b64encode(BODY.encode()).decode())),
    "llama-swap: a long stream": lambda: json.dumps(
        capture(resp_body=base64.b64encode(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * MANY).decode())
    ),
    "llama-swap: many headers": lambda: json.dumps(capture(req_headers={f"h{n}": "x" for n in range(MANY)})),
    "llama-swap: many captures": lambda: json.dumps([capture()] * 2_000),
}
"""By what they do; each is made when it is asked for."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_a_recording_is_refused_or_read(name: str) -> None:
    data = BOMBS[name]().encode()
    try:
        found = inputs.sent(data, "recording")
    except CacheDoctorError as caught:
        refused: CacheDoctorError | None = caught
        found = []
    else:
        refused = None
    if refused is not None:
        assert "\n" not in refused.message
        assert len(refused.message) < 700
    assert sum(len(prompt.text) for prompt in found if prompt is not None) <= 3 * len(data) + 1_000
