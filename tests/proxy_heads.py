"""Exchanges whose heads hold any of the 256 byte values: what a proxy passes on is byte for byte what it was given.

Both sides are sockets, because HTTP libraries decode and change such heads. A proxy may refuse a request (400) or an
answer (502) that it cannot pass on, but it must not pass on another one.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections.abc import Iterable
from typing import NamedTuple

HOP = {b"connection", b"transfer-encoding", b"content-length", b"via", b"host"}
"""Fields that a proxy writes again, and those of this test."""
TEXTS = (b"plain", b"two words", b"a\tb", "naïve 日本".encode(), b"", b'"q";x=1, y')
METHODS = (b"POST", b"POST", b"GET", b"PUT", b"DELETE", b"QUERY")
CRLF = re.compile(rb"\r\n")
LOOSE = re.compile(rb"\r?\n")
"""End of a line in an answer: readers accept both, the proxy as well as a direct client."""


class Head(NamedTuple):
    """A request or an answer, as far as a proxy has to keep it."""

    start: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes


class HeadServer:
    """Keeps the last request it was given, and answers it with ``answer``."""

    def __init__(self) -> None:
        self.answer = b""
        self.given: Head | None = None
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, contextlib.suppress(OSError):
                    client.settimeout(10)
                    self.given = parsed(received(client), CRLF)
                    client.sendall(self.answer)


def received(connection: socket.socket) -> bytes:
    """Read one message, to its end as its head says it."""
    data = b""
    while not is_whole(data):
        part = connection.recv(1 << 16)
        if not part:
            break
        data += part
    return data


def is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    if b"\r\ntransfer-encoding:" in head.lower():
        return body.endswith((b"\r\n0\r\n\r\n", b"X-T: 1\r\n\r\n")) or body == b"0\r\n\r\n"
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return not head.startswith(b"HTTP/") if length is None else len(body) >= int(length[1])


def parsed(data: bytes, line_end: re.Pattern[bytes]) -> Head:
    """Split a message; its fields are those that a proxy keeps, with the space around values taken off."""
    head, *rest = re.split(b"(?:%b){2}" % line_end.pattern, data, maxsplit=1)
    body = b"".join(rest)
    start, *lines = line_end.split(head)
    pairs = [line.partition(b":")[::2] for line in lines]
    fields = [(name, value.strip(b" \t")) for name, value in pairs if name.lower() not in HOP]
    is_chunked = any(name.lower() == b"transfer-encoding" for name, _ in pairs)
    return Head(start, fields, b"".join(_chunks(body)) if is_chunked else body)


def _chunks(body: bytes) -> Iterable[bytes]:
    while body:
        line, _, rest = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            return
        yield rest[:size]
        body = rest[size + 2 :]


def text(chance: random.Random) -> bytes:
    """A value of a field; one in six with one byte, or all bytes, of any value."""
    found = chance.choice(TEXTS)
    if chance.random() < 0.15:
        at = chance.randrange(len(found) + 1)
        found = found[:at] + bytes([chance.randrange(256)]) + found[at:]
    return chance.randbytes(8).replace(b"\r\n", b"") if chance.random() < 0.03 else found


def fields(chance: random.Random) -> list[tuple[bytes, bytes]]:
    found = []
    for number in range(chance.randrange(4)):
        name = b"X-%d" % number
        if chance.random() < 0.1:
            at = chance.randrange(len(name) + 1)
            name = name[:at] + bytes([chance.randrange(256)]) + name[at:]
        found.append((name, text(chance)))
    return found


def target(chance: random.Random) -> bytes:
    found = b"/" + chance.choice((b"", b"x", b"x?", b"x?a=b&&c", b"a%2Fb", b"/../x", b"x#y", b"x?#"))
    if chance.random() < 0.15:
        at = chance.randrange(1, len(found) + 1)
        found = found[:at] + bytes([chance.randrange(256)]) + found[at:]
    return found


def request(chance: random.Random) -> bytes:
    """A request; chunked ones may have extensions and trailers."""
    method = chance.choice(METHODS)
    lines = [b"%b %b HTTP/1.1" % (method, target(chance)), b"Host: localhost"]
    lines += [b"%b: %b" % field for field in fields(chance)]
    framing = chance.choice((b"Content-Length: 2", b"Transfer-Encoding: chunked"))
    if method in (b"GET", b"DELETE"):
        return b"\r\n".join([*lines, b"", b""])
    body = b"{}"
    if framing.endswith(b"chunked"):
        extension = chance.choice((b"", b";x=1", b';x="%b"' % text(chance), b";" + text(chance)))
        trailer = chance.choice((b"", b"X-T: 1\r\n"))
        body = b"2%b\r\n{}\r\n0\r\n%b\r\n" % (extension, trailer)
    return b"\r\n".join([*lines, framing, b"", body])


def answer(chance: random.Random) -> bytes:
    start = b"HTTP/1.1 %d" % chance.choice((200, 200, 404, 503))
    if chance.random() < 0.9:
        start += b" " + text(chance)
    lines = [start, *(b"%b: %b" % field for field in fields(chance))]
    return b"\r\n".join([*lines, b"Content-Length: 2", b"Connection: close", b"", b"ok"])


def differences(server: HeadServer, port: int, seeds: Iterable[int], counts: dict[str, int] | None = None) -> list[str]:
    """Have exchanges through the proxy at ``port``; says what arrived otherwise. ``counts`` gets what was refused."""
    return [fault for seed in seeds for fault in _differences(server, port, seed, {} if counts is None else counts)]


def _differences(server: HeadServer, port: int, seed: int, counts: dict[str, int]) -> list[str]:
    chance = random.Random(seed)
    sent, server.answer, server.given = request(chance), answer(chance), None
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, contextlib.suppress(ConnectionError):
        client.sendall(sent)
        got = received(client)
    status, given = got[9:12], server.given
    if given is None:
        counts["refused requests"] = counts.get("refused requests", 0) + 1
        return [] if status == b"400" else [f"seed {seed}: {sent!r} reached no server and was answered {got[:200]!r}"]
    found = []
    wanted = parsed(sent, CRLF)
    if given != wanted:
        found.append(f"seed {seed}: the server was sent {given!r} instead of {wanted!r}")
    if status == b"502" and b"cachedoctor proxy: " in got:
        counts["refused answers"] = counts.get("refused answers", 0) + 1
        return found
    counts["passed"] = counts.get("passed", 0) + 1
    mine, wanted = parsed(got, CRLF), parsed(server.answer, LOOSE)
    # A status line without a reason is written with the space that RFC 9112 demands.
    wanted = wanted._replace(start=wanted.start + b" " * (wanted.start.count(b" ") == 1))
    if mine != wanted:
        found.append(f"seed {seed}: the client was answered {mine!r} instead of {wanted!r}")
    return found
