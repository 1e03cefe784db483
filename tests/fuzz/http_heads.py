"""What the proxy holds for any bytes of a head: it passes byte for byte, or is refused."""

from __future__ import annotations

import asyncio
import random
import re
from types import SimpleNamespace
from typing import Any, cast

import proxy_heads
from aiohttp import http_exceptions, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpRequestParser, HttpResponseParser
from aiohttp.http_writer import _serialize_headers as serialized
from multidict import CIMultiDict
from yarl import URL

from cachedoctor.live.named_hosts import NamedHosts
from cachedoctor.live.proxy import relay
from cachedoctor.live.proxy.connections import LONGEST_LINE, is_writable, passing, went_through
from cachedoctor.live.proxy.exchange import ProxyOptions

_LOOP = asyncio.new_event_loop()
_UPSTREAM = URL("http://127.0.0.1:9/base/")
_RELAY = relay.Relay(_UPSTREAM, "cachedoctor-0", ProxyOptions(), lambda *_: None)
_HOSTS = NamedHosts("127.0.0.1")
_OURS = re.compile(r"[ \t]*(?:localhost\.?|[0-9.]+|\[[0-9a-f:.]+(?:%[^\[\]]*)?\])(?::[0-9]*)?[ \t]*", re.IGNORECASE)
"""Values of Host that are localhost or an address, told in another way than the proxy tells it."""


def request_head(data: bytes) -> None:
    """A request's head is written as it was read, or refused; a name of another host never passes."""
    for message in _messages(HttpRequestParser, data):
        if message.path is None:  # a CONNECT of HTTP/0.9: ``Connection`` refuses it
            continue
        request = SimpleNamespace(
            method=message.method, raw_path=message.path, raw_headers=message.raw_headers, headers=message.headers
        )
        if not _check(request):
            continue
        _same(f"{message.method} {_target(request)}", message.path, message, data)


def request_target(data: bytes) -> None:
    """A target passes with all of its bytes, or is refused."""
    if not data or b"\n" in data or b"\r" in data or b" " in data:
        return
    request = SimpleNamespace(
        method="POST", raw_path=data.decode("utf-8", "surrogateescape"), raw_headers=(), headers=CIMultiDict()
    )
    if _check(request):
        origin = re.match(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", data)
        path = data if origin is None else data[origin.end() :]
        path = path if path.startswith(b"/") else b"/" + path
        assert _target(request).encode() == b"/base" + path
    told = relay._sound(relay._path(cast("web.BaseRequest", request)).partition("?")[0])
    assert told.startswith("/")
    told.encode()


def response_head(data: bytes) -> None:
    """An answer's head is written as it was read, or refused."""
    for message in _messages(HttpResponseParser, data):
        if is_writable([message.reason or ""], message.raw_headers):
            # A folded field continues one line, as RFC 9112 (5.2) asks of a proxy.
            unfolded = re.sub(rb"\r?\n(?=[ \t])", b"", data)
            _same(f"HTTP/1.1 {message.code} {message.reason or ''}", message.reason or "", message, unfolded)


def _check(request: Any) -> bool:
    went_through(request.raw_headers, "cachedoctor-0")
    hosts = request.headers.getall("Host", ())
    if _HOSTS.allow(hosts, request.raw_path):
        (host,) = hosts
        assert _OURS.fullmatch(host), host
    return relay._can_be_sent(request)


def _target(request: Any) -> str:
    return _RELAY._target(request).raw_path_qs


def _messages(kind: Any, data: bytes) -> list[Any]:
    parser = kind(
        BaseProtocol(_LOOP), _LOOP, 1 << 16, max_line_size=LONGEST_LINE, max_field_size=LONGEST_LINE,
        auto_decompress=False,
    )  # fmt: skip
    try:
        return [message for message, _ in parser.feed_data(data)[0]]
    except http_exceptions.HttpProcessingError:
        return []


def _same(start: str, word: str, message: Any, data: bytes) -> None:
    """Write a head, and hold it against what is in ``data``."""
    head: bytes = serialized(start, relay._decoded(passing(message.raw_headers)))
    first, *lines = head.split(b"\r\n")[:-2]
    assert first == start.encode()
    assert word.encode() in data
    kept = passing(message.raw_headers)
    assert lines == [b"%b: %b" % field for field in kept]
    assert all(name in data and value in data for name, value in kept)


def requests() -> list[bytes]:
    chance = random.Random(3)
    odd = [
        b"GET http://u:p@localhost:80/x?y#z HTTP/1.1\r\nHost: [::1]:8\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nVia: 1.1 cachedoctor-0, 1.0 x\r\nConnection: x, y\r\nX: 1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: LOCALHOST.:80\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    ]
    return [proxy_heads.request(chance) for _ in range(40)] + odd


def targets() -> list[bytes]:
    chance = random.Random(4)
    return [proxy_heads.target(chance) for _ in range(40)] + [b"http://u:p@h:1/x?y#z", b"*", b"a:1", b"//", b"http://"]


def responses() -> list[bytes]:
    chance = random.Random(5)
    return [proxy_heads.answer(chance) for _ in range(40)]
