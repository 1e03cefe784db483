"""A gateway on the loopback that does something wrong with chat requests, and passes all else unchanged."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import random
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Change = Callable[[dict[str, Any], int], None]
"""Changes the body of the n-th chat request."""


def billing(body: dict[str, Any], n: int) -> None:
    """Put a header with a value of its own before the first message, as some clients do."""
    body["messages"].insert(
        0, {"role": "system", "content": f"x-billing-header: cch={random.Random(n).getrandbits(40):010x};"}
    )


def clock(body: dict[str, Any], n: int) -> None:
    """Begin the first message with the time of day."""
    body["messages"][0]["content"] = f"It is 12:{n:02d}:07. " + body["messages"][0]["content"]


def shuffled(body: dict[str, Any], n: int) -> None:
    """Send tools in another order each time."""
    if body.get("tools"):
        turn = n % len(body["tools"])
        body["tools"] = body["tools"][turn:] + body["tools"][:turn]


def system_moved(body: dict[str, Any], _: int) -> None:
    """Merge all system messages into the first."""
    system = [m["content"] for m in body["messages"] if m["role"] == "system"]
    others = [m for m in body["messages"] if m["role"] != "system"]
    body["messages"] = [{"role": "system", "content": "\n".join(system[::-1])}, *others]


def no_cache(body: dict[str, Any], _: int) -> None:
    """Switch reuse off."""
    body["cache_prompt"] = False


def pinned(body: dict[str, Any], _: int) -> None:
    """Send everything to one slot."""
    body["id_slot"] = 0


def history_stamped(body: dict[str, Any], n: int) -> None:
    """Write a counter of the history into its first message once there is an answer in it."""
    if any(m["role"] == "assistant" for m in body["messages"]):
        body["messages"][0]["content"] = f"({n} so far) " + body["messages"][0]["content"]


def images_anew(body: dict[str, Any], n: int) -> None:
    """Encode each image again, with a comment of its own after its head; the picture stays the same."""
    for message in body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url":
                kind, _, data = part["image_url"]["url"].partition(",")
                png, text = base64.b64decode(data), b"tEXtComment\0" + str(n).encode()
                chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
                part["image_url"]["url"] = f"{kind},{base64.b64encode(png[:33] + chunk + png[33:]).decode()}"


def images_refused(body: dict[str, Any], _: int) -> None:
    """Spoil each image, as a gateway does that cuts long values off."""
    for message in body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url":
                part["image_url"]["url"] = part["image_url"]["url"][:60]


@contextmanager
def gateway(ports: list[int], change: Change | None) -> Iterator[int]:
    """Give the port of a gateway to servers, in turn; ``change`` is made to chat requests."""
    counter, lock = itertools.count(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            """Pass it on."""
            self._pass(None, ports[0])

        def do_POST(self) -> None:
            """Pass it on, changed where it is a chat."""
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path not in ("/v1/chat/completions", "/v1/messages"):
                return self._pass(raw, ports[0])
            with lock:
                n = next(counter)
            body = json.loads(raw)
            if change is not None and self.path == "/v1/chat/completions":
                change(body, n)
            return self._pass(json.dumps(body).encode(), ports[n % len(ports)])

        def _pass(self, raw: bytes | None, port: int) -> None:
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            upstream.request(self.command, self.path, raw, {"Content-Type": "application/json"})
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
