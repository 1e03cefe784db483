"""Listens, forwards requests through the relay, has them evaluated, and shuts down in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from cachedoctor.live.named_hosts import REFUSAL, NamedHosts
from cachedoctor.live.proxy.connections import ClientConnection, Limits, OpenHeads
from cachedoctor.live.proxy.exchange import Exchange, PassedRequest, ProxyOptions
from cachedoctor.live.proxy.looking_process import LookingProcess, blind
from cachedoctor.live.proxy.relay import Relay, as_sent
from cachedoctor.model import CacheDoctorError
from cachedoctor.redaction.secrets import hidden

if TYPE_CHECKING:
    from cachedoctor.live.proxy.proxy_metrics import ProxyMetrics


class Address(NamedTuple):
    """Address to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServingPlan(NamedTuple):
    """What to serve."""

    upstream: str
    listen: Address
    metrics: Address | None
    asked: ProxyOptions
    tell: Callable[[PassedRequest], None]
    ready: Callable[[Address, Address | None], None]
    hosts: tuple[str, ...] = ()
    """Names that clients may use for it, besides localhost and the one that it listens on."""
    limits: Limits = Limits()


def upstream_url(text: str) -> URL:
    """Parse the address of the server; raises CacheDoctorError if it is not one."""
    hint = "give the server as http://HOST:PORT, including any path before /v1"
    try:
        url = URL(text)
        bad = url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment
    except ValueError:
        bad = True
    if "@" in text:  # a name or a password, which is not to be quoted
        raise CacheDoctorError(
            "--upstream: the address contains a user name or password, but clients send their own", hint
        )
    if bad:
        raise CacheDoctorError(f"--upstream {hidden(text[:200])}: is not a server address", hint)
    return url


def serve(plan: ServingPlan) -> bool:
    """Serve until a signal says to end; returns whether a second one aborted requests.

    Raises:
        CacheDoctorError: the address is taken, or what was asked cannot be done.
    """
    url = upstream_url(plan.upstream)
    if hasattr(signal, "SIGPIPE"):  # a client, or a reader of the lines, that leaves while it is written to ends nobody
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    looking = LookingProcess(plan.asked)
    try:
        serving = _Serving(plan, url, looking)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            cut = runner.run(serving.run())
        cut = _closed(looking, cut)
        serving.tell_looked()
    except BaseException:
        looking.kill()
        raise
    return cut


def _closed(looking: LookingProcess, at_once: bool) -> bool:
    """End the evaluation of requests; returns whether something was aborted by now."""
    try:
        looking.close(at_once)
    except KeyboardInterrupt:  # the loop, which hears signals, has ended
        looking.close(at_once=True)
        return True
    return at_once


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop, which causes shorter waits on a busy machine; that of asyncio if it is not
    installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Serving:
    def __init__(self, plan: ServingPlan, upstream: URL, looking: LookingProcess) -> None:
        self._plan, self._looking = plan, looking
        self._relay = Relay(upstream, f"cachedoctor-{secrets.token_hex(8)}", plan.asked, self._ended)
        self._metrics = None if plan.metrics is None else _metrics()
        self._looked_at: deque[tuple[PassedRequest, int]] = deque()
        """What is to be reported, with the memory that it uses."""
        self._caught: list[signal.Signals] = []
        self._asked_to_end = asyncio.Event()
        self._cut = asyncio.Event()

    async def run(self) -> bool:
        self._loop = asyncio.get_running_loop()
        heads, runners = OpenHeads(self._plan.limits), []
        listening: list[_Listening] = []
        try:
            await self._relay.open()
            for address, app, option in self._pages():
                app.middlewares.insert(0, _guard(NamedHosts(address.host, self._plan.hosts)))
                runners.append(web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1))
                listening.append(await _listen(runners[-1], heads, address, option))
            self._catch_signals()
            self._plan.ready(listening[0].address, listening[1].address if listening[1:] else None)
            await self._asked_to_end.wait()
            await self._drain(listening[0].server)
        finally:
            for one in listening:
                one.server.close()
            for runner in runners:
                await runner.cleanup()
            await self._relay.close()
            self._leave_signals()
        return self._cut.is_set()

    def _pages(self) -> Iterator[tuple[Address, web.Application, str]]:
        yield self._plan.listen, self._app(), "--listen"
        if self._metrics is not None and self._plan.metrics is not None:
            yield self._plan.metrics, self._metrics.app(), "--metrics-listen"

    def _app(self) -> web.Application:
        @web.middleware
        async def relay(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._relay.handle(request)

        app = web.Application(middlewares=[relay])
        app.on_response_prepare.append(as_sent)
        return app

    def _ended(self, exchange: Exchange, room: int) -> None:
        """Queue a finished request for evaluation, if it may contain a prompt."""
        is_silent = exchange.method != "POST" or (exchange.body is not None and not exchange.body)
        if is_silent:
            self._relay.held.give_back(room)
            seen = blind(exchange, "")
            seen.is_prompt = False
            self._tell(seen)
            return
        self._looking.look(exchange, lambda seen: self._looked(seen, room))

    def _looked(self, seen: PassedRequest, room: int) -> None:
        """Called from another thread, or at once."""
        self._looked_at.append((seen, room))
        with contextlib.suppress(RuntimeError):  # the loop has ended; what was in its way is told all the same
            self._loop.call_soon_threadsafe(self.tell_looked)

    def tell_looked(self) -> None:
        """Report what has been evaluated."""
        while self._looked_at:
            seen, room = self._looked_at.popleft()
            self._relay.held.give_back(room)
            self._tell(seen)

    def _tell(self, seen: PassedRequest) -> None:
        if self._metrics is not None:
            self._metrics.count(seen)
        self._plan.tell(seen)

    def _catch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            # A job started in the background ignores the signal, and must continue doing so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
                    self._loop.add_signal_handler(number, self._struck)
                    self._caught.append(number)

    def _leave_signals(self) -> None:
        """From here on one raises KeyboardInterrupt; uvloop would continue swallowing them."""
        for number in self._caught:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)

    def _struck(self) -> None:
        if self._asked_to_end.is_set():
            self._cut.set()
        self._asked_to_end.set()

    async def _drain(self, server: asyncio.Server) -> None:
        """Let requests in progress end, until a second signal, or until none of them makes progress."""
        self._relay.is_closing = True
        server.close()
        progress, since = self._relay.progress, self._loop.time()
        while self._relay.running and not self._cut.is_set() and self._loop.time() - since < self._plan.limits.drain:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._cut.wait(), 0.05)
            if progress != self._relay.progress:
                progress, since = self._relay.progress, self._loop.time()
        self._relay.is_cut = bool(self._relay.running)


def _metrics() -> ProxyMetrics:
    """Counters; only they need the Prometheus library."""
    from cachedoctor.live.proxy.proxy_metrics import ProxyMetrics

    return ProxyMetrics()


class _Listening(NamedTuple):
    server: asyncio.Server
    address: Address


async def _listen(runner: web.AppRunner, heads: OpenHeads, address: Address, option: str) -> _Listening:
    await runner.setup()
    manager = runner.server
    if manager is None:
        raise RuntimeError("the runner is not set up")
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(manager, heads), address.host, address.port, backlog=1024
        )
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is in use" if taken else (os.strerror(error.errno) if error.errno else str(error))
        raise CacheDoctorError(f"{option} {address}: {why}", f"give another address with {option}") from error
    found = server.sockets[0].getsockname()
    return _Listening(server, Address(str(found[0]), int(found[1])))


def _guard(hosts: NamedHosts) -> Middleware:
    """What every request passes first: its head is complete, and must name this machine."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not isinstance(request.protocol, ClientConnection):
            raise TypeError("a connection of another server")
        async with request.protocol.request():
            if not hosts.allow(request.headers.getall("Host", ()), request.raw_path):
                return web.Response(status=403, text=f"cachedoctor proxy: {REFUSAL}\n")
            return await handler(request)

    return guard
