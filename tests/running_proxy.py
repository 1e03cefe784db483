"""The proxy's server inside of a test, with limits of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from proxy_exchanges import free_port

from cachedoctor.live.proxy.connections import Limits
from cachedoctor.live.proxy.exchange import Exchange, PassedRequest, ProxyOptions
from cachedoctor.live.proxy.looking_process import LookingProcess, blind
from cachedoctor.live.proxy.serving import Address, ServingPlan, _Serving, upstream_url

T = TypeVar("T")


class _NotLooking:
    """Tells each request at once."""

    def look(self, exchange: Exchange, then: Callable[[PassedRequest], None]) -> None:
        then(blind(exchange, ""))


class Running:
    """A proxy that runs, and what it told."""

    def __init__(self, upstream: int, limits: Limits, hosts: tuple[str, ...], listen: str, metrics: bool) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self.told: list[PassedRequest] = []
        self.is_ending = False
        self.ready = asyncio.Event()
        where = Address("127.0.0.1", self.metrics_port) if metrics else None
        url = f"http://127.0.0.1:{upstream}"
        ours = Address(listen, self.port)
        plan = ServingPlan(
            url, ours, where, ProxyOptions(), self.told.append, lambda *_: self.ready.set(), hosts, limits
        )
        self._serving = _Serving(plan, upstream_url(url), cast("LookingProcess", _NotLooking()))

    async def run(self) -> bool:
        return await self._serving.run()

    @property
    def under_way(self) -> int:
        return len(self._serving._relay.running)

    def end(self) -> None:
        """Do what a signal does."""
        self.is_ending = True
        self._serving._struck()


def through(
    upstream: int,
    client: Callable[[Running], Awaitable[T]],
    *,
    limits: Limits | None = None,
    hosts: tuple[str, ...] = (),
    listen: str = "127.0.0.1",
    metrics: bool = False,
) -> T:
    """Run a proxy in front of a port while ``client`` runs, and end it; gives what the client gave."""

    async def scenario() -> T:
        proxy = Running(upstream, limits or Limits(), hosts, listen, metrics)
        task = asyncio.create_task(proxy.run())
        try:
            await asyncio.wait_for(proxy.ready.wait(), 20)
            return await client(proxy)
        finally:
            if not proxy.is_ending:
                proxy.end()
            await asyncio.wait_for(task, 20)

    return asyncio.run(scenario())


@contextmanager
def mute_server() -> Iterator[int]:
    """A server that accepts connections by its backlog and never reads or answers, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as found:
        yield found.getsockname()[1]
