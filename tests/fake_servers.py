"""Small servers on the loopback that answer like llama-server, vLLM, ollama or LM Studio, and some that answer badly.

A token is four characters.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class Fake(BaseHTTPRequestHandler):
    """Holds every prompt for ever, and counts what a new one shares with them."""

    engine: ClassVar[str] = "llama.cpp"
    counts: ClassVar[bool] = True
    reuses: ClassVar[bool] = True
    second_per_token: ClassVar[float] = 0.0
    """What it says that computing takes; it does not."""
    busy: ClassVar[bool] = False
    key: ClassVar[str | None] = None
    name: ClassVar[str] = "tiny"
    build: ClassVar[str] = "b11549-1234567"
    others_after: ClassVar[int] = 0
    """Number of the chat after which somebody else pushes all out; 0: nobody does."""
    shows_slots: ClassVar[bool] = True
    stores: ClassVar[bool] = False
    """A gateway in front of it keeps whole answers, and gives them to whoever asks the same."""
    refuses: ClassVar[str | None] = None
    """Words with which it refuses tools."""
    images: ClassVar[str] = ""
    """It says that it takes images, and does: ``kept``; ``again``, as if each had other bytes; ``lost``: a prompt with
    one is never reused; ``refused``: it does not."""
    block: ClassVar[int] = 16
    config: ClassVar[str] = ""
    """What vLLM's /metrics says of its cache; empty: block and ``reuses``."""
    context: ClassVar[int] = 8192
    """Of vLLM, which refuses what is longer."""
    renders: ClassVar[bool] = False
    """It shows what its template makes of a request, as llama-server does."""
    ticks: ClassVar[bool] = False
    """Its template writes the time, in seconds."""
    held: ClassVar[list[str]]
    kept: ClassVar[list[dict[str, Any]]]
    looked: ClassVar[list[int]]
    """Chats that were answered when the slots were checked; the first look after one is too early to see others."""
    seen: ClassVar[list[dict[str, Any]]]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Say what it is."""
        if self.key is not None and self.headers.get("Authorization") != f"Bearer {self.key}":
            return self._send(401, {"error": {"message": f"wrong key, not {self.key}"}})
        if self.path == "/slots":
            self.looked.append(len(self.seen))
        found = self._said().get(self.path)
        if found is None and self.engine == "lmstudio":
            return self._send(200, {"error": f"Unexpected endpoint or method. (GET {self.path})"})
        return self._send(404, {"error": "no such thing"}) if found is None else self._send(200, found)

    def do_POST(self) -> None:
        """Answer a chat."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.renders and self.path in ("/apply-template", "/tokenize"):
            return self._send(200, self._rendered(body))
        if self.path != "/v1/chat/completions":
            return self._send(404, {"error": "no such thing"})
        if self.stores and body in self.seen:
            return self._send(200, self.kept[self.seen.index(body)])
        self.seen.append(body)
        if self.refuses and "tools" in body:
            return self._send(400, {"error": {"message": self.refuses}})
        pictured = any(isinstance(m["content"], list) for m in body["messages"])
        if pictured and self.images in ("", "refused"):
            return self._send(500, {"error": {"message": "image input is not supported"}})
        prompt = self._prompt(body)
        cached = max((_common(prompt, other) // 4 for other in self.held), default=0) if self.reuses else 0
        if pictured and self.images == "lost":
            cached = 0
        self.held.append(prompt)
        if len(self.seen) == self.others_after:
            self.held.clear()
        tokens = len(prompt) // 4
        cached = min(cached, tokens - 1)
        if self.engine == "vllm":
            if tokens > self.context:
                return self._send(400, {"error": {"message": f"maximum context length is {self.context} tokens"}})
            cached -= cached % self.block
        answer = self._answer(tokens, cached)
        if self.second_per_token:
            answer["took"] = 0.01 + (tokens - cached) * self.second_per_token
        self.kept.append(answer)
        return self._send(200, answer)

    def _prompt(self, body: dict[str, Any]) -> str:
        now = [f"It is {time.time():.0f}."] if self.ticks else []
        return "\n".join(
            [
                *now,
                *map(json.dumps, body.get("tools", [])),
                *(m["role"] + self._text(m["content"]) for m in body["messages"]),
            ]
        )

    def _text(self, content: str | list[dict[str, Any]]) -> str:
        """The text of a message; an image is a hundred tokens that depend on its bytes."""
        if isinstance(content, str):
            return content
        salt = str(len(self.seen)) if self.images == "anew" else ""
        return "".join(
            part["text"]
            if part["type"] == "text"
            else sha256((part["image_url"]["url"] + salt).encode()).hexdigest() * 6
            for part in content
        )

    def _rendered(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.path == "/apply-template":
            return {"prompt": self._prompt(body)}
        pieces = [body["content"][i : i + 4] for i in range(0, len(body["content"]) - 3, 4)]
        return {"tokens": [int.from_bytes(sha256(piece.encode()).digest()[:4]) for piece in pieces]}

    def _answer(self, tokens: int, cached: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
        answer = {
            "id": f"chatcmpl-{len(self.seen)}",
            "object": "chat.completion",
            "choices": [{"message": {"role": "assistant", "content": "1"}}],
            "usage": usage,
        }
        if self.engine == "vllm":
            usage["prompt_tokens_details"] = {"cached_tokens": cached} if self.counts and cached else None
        elif self.engine == "lmstudio":
            answer["stats"] = {}
        elif self.engine == "ollama":
            answer["system_fingerprint"] = "fp_ollama"
        elif self.counts:
            answer["timings"] = {"cache_n": cached, "prompt_n": tokens - cached}
        return answer

    def _said(self) -> dict[str, Any]:
        about = {"id": self.name, "owned_by": self.engine}
        models = {
            "object": "list",
            "data": [about | ({"max_model_len": self.context} if self.engine == "vllm" else {})],
        }
        others = sum(0 < self.others_after <= chats for chats in self.looked) > 1 or self.engine == "vllm"
        done = len(self.seen) + (others and 0 < self.others_after <= len(self.seen))
        slots = [{"id": 0, "is_processing": self.busy} | ({"id_task": 10 * done} if done else {})]
        config = self.config or f'{{block_size="{self.block}",enable_prefix_caching="{self.reuses}"}}'
        info = f"vllm:cache_config_info{config} 1.0\n"
        return {"/v1/models": models} | {
            "llama.cpp": {
                "/props": {
                    "total_slots": 1,
                    "default_generation_settings": {"n_ctx": 8192},
                    "modalities": {"vision": self.images != "", "audio": False},
                    "build_info": self.build,
                },
                "/slots": slots if self.shows_slots else {"error": {"message": "this server does not support slots"}},
            },
            "vllm": {
                "/version": {"version": "0.32.0"},
                "/metrics": info
                + f"vllm:num_requests_running{{}} {int(self.busy)}.0\n"
                + f'vllm:request_success_total{{reason="length"}} {done}.0\n'
                + 'vllm:request_success_total{reason="abort"} 1e0\n',
            },
            "sglang": {
                "/get_server_info": {"disable_radix_cache": not self.reuses, "page_size": 1, "version": "0.5.3"}
            },
            "ollama": {"/api/ps": {"models": [{"name": self.name}]}, "/api/version": {"version": "0.12.1"}},
            "lmstudio": {"/api/v0/models": {"data": [{"id": self.name, "state": "loaded"}]}},
            "other": {},
        }[self.engine]

    def _send(self, status: int, value: Any) -> None:
        raw = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@contextmanager
def served(**settings: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give the address of a fake with these settings, and the chats that it gets."""
    seen: list[dict[str, Any]] = []
    kind = type("Set", (Fake,), {**settings, "held": [], "kept": [], "looked": [], "seen": seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def raw(answer: bytes, drip: float = 0) -> Iterator[str]:
    """Give the address of what answers each connection with these bytes; ``drip``: seconds between them."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)

        def serve() -> None:
            while not stop.is_set():
                try:
                    client, _ = listening.accept()
                except TimeoutError:
                    continue
                with client:
                    client.settimeout(2)
                    try:
                        client.recv(65536)
                        for piece in [answer[i : i + 1] for i in range(len(answer))] if drip else [answer]:
                            client.sendall(piece)
                            if drip and stop.wait(drip):
                                break
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()
