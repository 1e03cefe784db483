"""An engine on loopback that answers every request with fixed words and keeps the bodies.

For tests of clients: OpenAI chat, completions and responses, Anthropic messages, as one answer or as a stream.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cachedoctor.prompts.request_bodies import kind_of

MAX_BODY = 64 * 1024 * 1024
"""Bytes of one request."""
MAX_KEPT = 256 * 1024 * 1024
"""Bytes of all requests."""
TIMEOUT_SECONDS = 10.0
"""Seconds for one step of a request: a client that stops in the middle blocks nothing for longer."""
_REPLY = "Noted."
_MODEL = "cachedoctor-fake"
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class FakeEngine:
    """Serves on a free port of 127.0.0.1 until it is closed."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        """What was posted, in the order of arrival."""
        self.replies: list[str | Mapping[str, Any]] = []
        """Replies to come, each used once: a text, or a message with ``tool_calls``; afterwards always one text."""
        self._kept = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_EngineHandler,), {"engine": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def root(self) -> str:
        """Address without a path, for clients that add ``/v1`` themselves."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """Address with ``/v1``, as OpenAI clients want it."""
        return f"{self.root}/v1"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def keep(self, body: dict[str, Any], path: str, size: int) -> dict[str, Any] | None:
        """Keep a body with the path that it was posted to, and give the reply; None where no more can be kept."""
        with self._lock:
            self._kept += size
            if self._kept > MAX_KEPT:
                return None
            self.bodies.append({"endpoint": path, "body": body})
            reply = self.replies.pop(0) if self.replies else _REPLY
        return {"role": "assistant", "content": reply} if isinstance(reply, str) else {"role": "assistant", **reply}


class _EngineHandler(BaseHTTPRequestHandler):
    """One connection."""

    engine: FakeEngine
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_SECONDS

    def do_GET(self) -> None:
        """Answer what clients ask before they begin."""
        self._json(200, {"object": "list", "data": [{"id": _MODEL, "object": "model", "owned_by": "cachedoctor"}]})

    def do_POST(self) -> None:
        """Keep a request and answer it."""
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return self._refuse(411, "a request needs its Content-Length")
        if not 0 <= size <= MAX_BODY:
            return self._refuse(413, f"a request has at most {MAX_BODY >> 20} MiB")
        data = self.rfile.read(size)
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return self._refuse(400, "the request is not a JSON object")
        kind = kind_of(body, self.path)
        if kind is None:
            return self._json(200, {"object": "list", "data": [], "usage": _USAGE})
        message = self.engine.keep(body, self.path, size)
        if message is None:
            return self._refuse(507, "the fake engine cannot keep more requests")
        if body.get("stream") is True:
            return self._stream(_events(kind, message))
        return self._json(200, _answer(kind, message))

    def _refuse(self, status: int, message: str) -> None:
        self.close_connection = True
        self._json(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _stream(self, events: Iterator[tuple[str | None, Any]]) -> None:
        rows = []
        for name, value in events:
            data = value if isinstance(value, str) else json.dumps(value)
            rows.append((f"event: {name}\n" if name else "") + f"data: {data}\n\n")
        self._send(200, "text/event-stream", "".join(rows).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: the output belongs to the tests."""


def _answer(kind: str, message: dict[str, Any]) -> dict[str, Any]:
    """A whole answer of the endpoint that was asked."""
    if kind == "anthropic-messages":
        return _anthropic(message)
    if kind == "openai-responses":
        return _response(message)
    if kind == "openai-completion":
        choice = {"index": 0, "text": message.get("content") or "", "finish_reason": "stop"}
        return {"id": "cmpl-1", "object": "text_completion", "model": _MODEL, "choices": [choice], "usage": _USAGE}
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": _MODEL, "choices": [choice],
            "usage": _USAGE}  # fmt: skip


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message as blocks of the Anthropic API."""
    text = message.get("content")
    found: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        value = json.loads(function["arguments"])
        found.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": value})
    return found


def _anthropic(message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_use" if message.get("tool_calls") else "end_turn"
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": _MODEL, "content": _blocks(message),
        "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def _response(message: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": message.get("content") or "", "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    ]
    for call in message.get("tool_calls") or []:
        output.append({"type": "function_call", "id": call["id"], "call_id": call["id"], **call["function"]})
    return {"id": "resp_1", "object": "response", "created_at": 0, "status": "completed", "model": _MODEL,
            "output": output, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}  # fmt: skip


def _events(kind: str, message: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """The same as a stream of as few events as clients need."""
    whole = _answer(kind, message)
    if kind == "anthropic-messages":
        yield from _anthropic_events(whole)
    elif kind == "openai-responses":
        yield "response.created", {"type": "response.created", "response": {**whole, "output": []}}
        yield "response.completed", {"type": "response.completed", "response": whole}
    elif kind == "openai-completion":
        yield None, whole
        yield None, "[DONE]"
    else:
        calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls") or [])]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        for piece, reason in ((delta, None), ({}, _finish(message))):
            choice = {"index": 0, "delta": piece, "finish_reason": reason}
            yield None, {**whole, "object": "chat.completion.chunk", "choices": [choice]}
        yield None, "[DONE]"


def _anthropic_events(whole: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "message_start", {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    for at, block in enumerate(whole["content"]):
        if block["type"] == "text":
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_start", {"type": "content_block_start", "index": at, "content_block": start}
        yield "content_block_delta", {"type": "content_block_delta", "index": at, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": at}
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}}
    yield "message_stop", {"type": "message_stop"}
