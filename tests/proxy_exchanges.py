"""Random exchanges with a server that does what their seed says: the same answer twice, or it is a fault of the proxy.

An exchange is one connection with one to three requests. The server takes from a request's seed how it answers:
status, fields, framing (length, chunks, until the end), pieces and pauses, broken off or no HTTP at all.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import random
import socket
import threading
import time
import zlib
from typing import Any, NamedTuple

TOKENS = "abcdefghijklmnopqrstuvwxyz-"
METHODS = ("POST", "POST", "POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY")
STATUSES = (200, 200, 200, 200, 201, 204, 304, 301, 400, 401, 404, 413, 429, 500, 503, 599)
CHANGED = {"connection", "keep-alive", "transfer-encoding", "via", "host"}
"""Fields that are about one connection, or that a proxy says again."""
RESET = b"(reset)"


class Got(NamedTuple):
    """What a client was given."""

    status: int
    reason: str
    fields: list[tuple[str, str]]
    body: bytes
    is_whole: bool


class Sent(NamedTuple):
    """What the server was given."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes


class Server:
    """The server behind the proxy."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, bool], Sent] = {}
        """By seed, and by whether a proxy passed it on."""
        self.left = threading.Event()
        """A client went away in the middle of a long answer."""
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.seen, self._http.left = self.seen, self.left
        self.port: int = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    seen: dict[tuple[int, bool], Sent]
    left: threading.Event

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is part of the plan."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        assert isinstance(self.server, _Http)
        if self.path == "/endless":
            self._endless(self.server.left)
            return
        body = self._body()
        seed = int(self.headers["X-Seed"])
        sent = Sent(self.command, self.path, passed(self.headers.items()), body)
        self.server.seen[seed, "Via" in self.headers] = sent
        answer(self, random.Random(seed))

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _endless(self, left: threading.Event) -> None:
        self._body()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.close_connection = True
        with contextlib.suppress(OSError):
            for _ in range(2000):
                self.wfile.write(b"9\r\ndata: x\n\n\r\n")
                time.sleep(0.005)
            return
        left.set()


def answer(handler: http.server.BaseHTTPRequestHandler, chance: random.Random) -> None:
    """Answer as the seed says."""
    out = handler.wfile
    status = chance.choice(STATUSES)
    body = b"" if status in (204, 304) else content(chance)
    fields = [f"X-{word(chance)}: {word(chance)}" for _ in range(chance.randrange(4))]
    fields += chance.choice(
        ([], ["Date: Mon, 23 Nov 2026 04:00:00 GMT"], ["Server: llama.cpp"], ["Set-Cookie: a=1", "Set-Cookie: b=2"])
    )
    fields += chance.choice(([], ["Content-Type: application/json"], ["Content-Type: text/event-stream"]))
    if body and chance.random() < 0.1:
        body = zlib.compress(body)
        fields.append("Content-Encoding: deflate")
    framing = chance.choice(("length", "length", "chunks", "chunks", "end", "cut length", "cut chunks", "garbage"))
    if status in (204, 304) or handler.command == "HEAD":
        framing = "length"
    if framing == "garbage":
        out.write(chance.choice((b"", b"\0\1\2\3", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n")))
        handler.close_connection = True
        return
    if "length" in framing and status != 204:
        fields.append(f"Content-Length: {len(body) + ('cut' in framing)}")
    if "chunks" in framing:
        fields.append("Transfer-Encoding: chunked")
    if framing in ("end", "cut length", "cut chunks"):
        fields.append("Connection: close")
        handler.close_connection = True
    reason = chance.choice(("OK", "Fine", ""))
    chance.shuffle(fields)
    out.write("\r\n".join([f"HTTP/1.1 {status} {reason}", *fields, "", ""]).encode())
    if handler.command == "HEAD":
        return
    for part in pieces(chance, body):
        out.write(b"%x\r\n%s\r\n" % (len(part), part) if "chunks" in framing else part)
        if chance.random() < 0.2:
            time.sleep(0.001)
    if framing == "chunks":
        out.write(b"0\r\n\r\n")


def content(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 10, 1000, 70_000))
    if chance.random() < 0.3:
        return b"".join(b'data: {"usage":{"prompt_tokens":%d}}\n\n' % n for n in range(size // 40))
    return chance.randbytes(size)


def pieces(chance: random.Random, body: bytes) -> list[bytes]:
    found = []
    while body:
        size = chance.choice((1, 7, 500, 20_000))
        found.append(body[:size])
        body = body[size:] if len(found) < 30 else b""
        if len(found) == 30:
            break
    rest = body
    return [*found, rest] if rest else found


def word(chance: random.Random) -> str:
    return "".join(chance.choices(TOKENS, k=chance.randrange(1, 12))).strip("-") or "x"


def exchange(port: int, seed: int) -> list[Got]:
    """Have one exchange with what listens at a port."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    found = []
    try:
        for number in range(chance.choice((1, 1, 2, 3))):
            found.append(one(connection, chance, seed * 4 + number))
            if not found[-1].is_whole:
                break
    finally:
        connection.close()
    return found


def one(connection: http.client.HTTPConnection, chance: random.Random, seed: int) -> Got:
    """Send one request as the seed says, and read its answer."""
    method = chance.choice(METHODS)
    target = "/" + "/".join(word(chance) for _ in range(chance.randrange(4)))
    target += chance.choice(
        ("", "?a=b&c=%20d", "?x=/y//z", "/a%2Fb", "//", "/./x/../y", "?q=\u0022".replace('"', "%22"))
    )
    connection.putrequest(method, target, skip_accept_encoding=True)
    connection.putheader("X-Seed", str(seed))
    for _ in range(chance.randrange(3)):
        connection.putheader(f"X-{word(chance)}", word(chance))
    for field in chance.choice(([], [("User-Agent", "x/1")], [("Accept", "*/*")], [("Authorization", "Bearer sk-1")])):
        connection.putheader(*field)
    body = content(chance) if method in ("POST", "PUT", "PATCH", "QUERY") else b""
    if body and chance.random() < 0.3:
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(iter(pieces(chance, body)), encode_chunked=True)
    else:
        if method in ("POST", "PUT", "PATCH", "QUERY"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
    try:
        answer = connection.getresponse()
    except (http.client.HTTPException, OSError):
        return Got(502, "", [], b"", False)
    try:
        return Got(answer.status, answer.reason, passed(answer.getheaders()), answer.read(), True)
    except http.client.IncompleteRead as error:
        return Got(answer.status, answer.reason, passed(answer.getheaders()), error.partial, False)
    except OSError:  # reset: what had arrived is lost here
        return Got(answer.status, answer.reason, passed(answer.getheaders()), RESET, False)


def passed(fields: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in fields if name.lower() not in CHANGED]


def differences(server: Server, proxy: int, seeds: range) -> list[str]:
    """Have each exchange with the server and through the proxy; what is not the same, in words."""
    found = []
    for seed in seeds:
        direct, passing = exchange(server.port, seed), exchange(proxy, seed)
        for number, (a, b) in enumerate(zip(direct, passing, strict=False)):
            mine = seed * 4 + number
            if a.status == 502 and b.status == 502 and b.body.startswith(b"cachedoctor proxy:"):
                b = a  # where the server sends no HTTP, a proxy says so
            for name, x, y in zip(Got._fields, a, b, strict=True):
                if x != y and x != RESET:
                    found.append(f"seed {seed}.{number}: {name} {short(x)} became {short(y)}")
            x, y = server.seen.pop((mine, False), None), server.seen.pop((mine, True), None)
            # aiohttp says of a DELETE or an OPTIONS without a body that its length is 0, which is the same.
            nothing = ("Content-Length", "0")
            if x and y and nothing not in x.fields and not y.body and nothing in y.fields:
                y.fields.remove(nothing)
            if x != y:
                found.append(f"seed {seed}.{number}: the server was sent {short(x)}, then {short(y)}")
        # After a refusal the client may continue through the proxy; a server that broke off ended the connection.
        if len(passing) < len(direct):
            found.append(f"seed {seed}: {len(direct)} answers became {len(passing)}")
    return found


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)})"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
