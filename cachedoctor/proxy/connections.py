"""Connections of clients: how long a request's head may take, and how many may be incomplete. Knows no request.

A head that never ends would hold its connection for ever, and enough of them all that the system lets a process open.
Bodies and answers may take as long as they like.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from cachedoctor.proxy.hop_headers import LONGEST_LINE

_IDLE = 3630.0
"""Seconds after which a connection without requests is closed: longer than the servers behind would keep it."""
_CLOSING = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Limits(NamedTuple):
    """What clients and servers that do nothing may hold up."""

    head: float = 30.0
    """Seconds from a new connection, or from the first byte of a later request, to the end of the request's head."""
    heads: int = 256
    """Connections whose head is not complete; one more closes the oldest of them."""
    drain: float = 600.0
    """Seconds without a byte of any request, after which the end of the proxy waits for none of them: by then clients
    have given up."""


class OpenHeads:
    """Connections that wait for a head, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._most = limits.head, min(limits.heads, max(1, _files() // 4))
        self._waiting: dict[Connection, asyncio.TimerHandle] = {}

    def begin(self, connection: Connection) -> None:
        """Wait for a head, unless this connection is waited for already."""
        if connection in self._waiting:
            return
        if len(self._waiting) >= self._most:
            next(iter(self._waiting)).give_up()
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self._seconds, connection.give_up)

    def end(self, connection: Connection) -> None:
        """The head is complete, or the connection is closed."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()


class Connection(web.RequestHandler):
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
        """In the block a request is under way: its head was complete."""
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
    """What aiohttp may write to: it quotes lines of a request that is no HTTP, which may hold a key."""
    logger = logging.Logger("cachedoctor.proxy")
    logger.disabled = True
    return logger
