"""Connections of clients: header fields that are forwarded, who sent a request, how long a head may take."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from cachedoctor.knowledge.late_patterns import late

Fields = list[tuple[bytes, bytes]]

LONGEST_LINE = 1 << 16
"""Bytes of a line of a head."""
_CONTROL = late(rb"[\0-\x08\x0a-\x1f\x7f]")

_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization"}
)
"""Fields that are about one connection. ``Proxy-Auth...`` is spoken with the next proxy (RFC 9110, 11.7)."""


def passing(fields: Iterable[tuple[bytes, bytes]], without: frozenset[bytes] = frozenset()) -> Fields:
    """Give the fields to forward, in their order and spelling, without those named in ``without`` (lower case)."""
    fields = list(fields)
    named = {
        word.strip().lower() for name, value in fields if name.lower() == b"connection" for word in value.split(b",")
    }
    # A field that frames the body is none that a sender may have dropped by naming it.
    dropped = (_HOP | named | without) - {b"content-length", b"content-type", b"content-encoding", b"host"} | without
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def went_through(fields: Iterable[tuple[bytes, bytes]], name: str) -> bool:
    """Whether a proxy that calls itself ``name`` has passed this request already."""
    words = (
        part.split()[1:2]
        for key, value in fields
        if key.lower() == b"via"
        for part in value.decode("latin-1").split(",")
    )
    return any(word == [name] for word in words)


def is_writable(start: Iterable[str], fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a head can be written again byte for byte: aiohttp writes UTF-8, and names in ASCII.

    ``start``: words of the first line as aiohttp gives them, with surrogates for bytes that are not UTF-8.
    """
    fields = list(fields)
    values = [*(word.encode("utf-8", "surrogateescape") for word in start), *(value for _, value in fields)]
    return all(name.isascii() for name, _ in fields) and all(map(_is_text, values))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(value) is None


_WORDS = late(r"[^a-z0-9]+")
_TELLING = frozenset(
    {"auth", "authorization", "authentication", "authenticated", "authuser", "apikey", "key", "token", "jwt", "bearer"}
    | {"secret", "password", "credential", "credentials", "cookie", "salt", "assertion", "cert", "certificate"}
    | {"user", "username", "uid", "login", "email", "identity", "identifier", "principal", "subject", "remote"}
    | {"session", "conversation", "thread", "chat", "previous"}
    | {"account", "organization", "org", "project", "tenant", "customer", "team", "workspace", "forwarded", "ip"}
)
"""Words in names of header fields and keys of a body that distinguish clients or their sessions."""
_OTHER = frozenset({"idempotency", "template"})
"""Words of names that are about one request: ``Idempotency-Key``, ``chat_template``."""
_COUNTING = "/count_tokens"
"""End of the path by which a client asks for the token count of a request before sending it."""


def tells_sender(name: str) -> bool:
    """Whether a header field or a key of a body is about who sends: ``X-Api-Key``, ``user``, ``session_id``."""
    words = _WORDS.split(name.lower())
    is_telling = not _TELLING.isdisjoint(words) or not _TELLING.isdisjoint(word.removesuffix("id") for word in words)
    return is_telling and _OTHER.isdisjoint(words)


class SenderDigest:
    """Makes digests that are useless outside this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, fields: Iterable[tuple[bytes, bytes]], target: str, peer: str) -> bytes:
        """Digest of who sends a request.

        Args:
            fields: of its head, as they were sent.
            target: of its request line, with all that comes after ``?``.
            peer: address of the other end of the connection, without port.
        """
        found = hashlib.blake2b(key=self._key, digest_size=32)
        path, mark, query = target.partition("?")
        telling = sorted((name.lower(), value) for name, value in fields if tells_sender(name.decode("latin-1")))
        address = (path.removesuffix(_COUNTING) + mark + query).encode("utf-8", "surrogateescape")
        for part in (peer.encode(), address, *(piece for field in telling for piece in field)):
            found.update(b"%d:" % len(part) + part)
        return found.digest()


_IDLE = 3630.0
"""Seconds after which an idle connection is closed: longer than the upstream servers would keep it."""
_CLOSING = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Limits(NamedTuple):
    """Limits on clients and servers that do nothing."""

    head: float = 30.0
    """Seconds allowed for a complete request header, from the new connection or from the first byte of a later
    request."""
    heads: int = 256
    """Maximum connections with an incomplete request header; one more closes the oldest."""
    drain: float = 600.0
    """Seconds without a byte of any request, after which the end of the proxy waits for none of them: by then clients
    have given up."""


class OpenHeads:
    """Connections that wait for a head, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._most = limits.head, min(limits.heads, max(1, _files() // 4))
        self._waiting: dict[ClientConnection, asyncio.TimerHandle] = {}

    def begin(self, connection: ClientConnection) -> None:
        """Wait for a head, unless this connection is waited for already."""
        if connection in self._waiting:
            return
        if len(self._waiting) >= self._most:
            next(iter(self._waiting)).give_up()
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self._seconds, connection.give_up)

    def end(self, connection: ClientConnection) -> None:
        """The head is complete, or the connection is closed."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()


class ClientConnection(web.RequestHandler):
    """One connection of a client."""

    def __init__(self, manager: web.Server, heads: OpenHeads) -> None:
        super().__init__(
            manager, loop=asyncio.get_running_loop(), access_log=_silent(), auto_decompress=False,
            keepalive_timeout=_IDLE, max_line_size=LONGEST_LINE, max_field_size=LONGEST_LINE, logger=_silent(),
        )  # fmt: skip
        self._heads = heads
        self._has_begun = self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._heads.begin(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes; where no request is under way, a head begins."""
        if not self._is_busy:
            self._has_begun = True
            self._heads.begin(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait no more."""
        self._heads.end(self)
        super().connection_lost(exc)

    async def start(self) -> None:
        """Answer requests; aiohttp fails here with a CONNECT of HTTP/0.9, which has no target."""
        try:
            await super().start()
        except Exception:
            self._close_with(b"400 Bad Request")

    def give_up(self) -> None:
        """Close it: its head takes too long, or there are too many such connections."""
        self._heads.end(self)
        if self._has_begun:
            self._close_with(b"408 Request Timeout")
        else:
            self.force_close()

    def _close_with(self, status: bytes) -> None:
        if self.transport is not None:
            self.transport.write(_CLOSING % status)
        self.force_close()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Context in which a request is in progress: its head was complete."""
        self._heads.end(self)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = self._has_begun = False


def _files() -> int:
    """How many files and connections this process may open."""
    try:
        import resource
    except ImportError:  # Windows: no such limit
        return 1 << 16
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft


def _silent() -> logging.Logger:
    """Logger for aiohttp: it quotes lines of a request that is not HTTP, which may contain a key."""
    logger = logging.Logger("cachedoctor.proxy")
    logger.disabled = True
    return logger
