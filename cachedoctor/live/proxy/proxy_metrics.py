"""Counters of the proxy for Prometheus, on an address of their own; the only importer of prometheus-client here."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

from cachedoctor.live.proxy.exchange import PassedRequest


class ProxyMetrics:
    """What the proxy saw, in sums."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests that ended, by status.", "status")
        self._broken = self._counter("broken_requests", "Requests that ended early: client gone, server gone.")
        self._prompt = self._counter("prompt_tokens", "Prompt tokens of responses with usage.")
        self._cached = self._counter("cached_tokens", "Reused prompt tokens of responses with usage.")
        self._again = self._counter("recomputed_tokens", "Tokens of previous prompts that were recomputed.", "change")
        self._changes = self._counter("changes", "Prompts by what changed since the previous prompt.", "change")

    def count(self, seen: PassedRequest) -> None:
        """Add a request."""
        self._requests.labels(str(seen.status)).inc()
        self._broken.inc(bool(seen.fault))
        if seen.prompt_tokens is not None and seen.cached_tokens is not None:
            self._prompt.inc(seen.prompt_tokens)
            self._cached.inc(seen.cached_tokens)
        if seen.change is not None:
            self._changes.labels(seen.change.kind).inc()
            if seen.recomputed is not None:
                self._again.labels(seen.change.kind).inc(seen.recomputed)

    def app(self) -> web.Application:
        """Serve the counters under /metrics."""
        app = web.Application()
        app.router.add_get("/metrics", self._page)
        return app

    async def _page(self, request: web.Request) -> web.Response:
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": kind})

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"cachedoctor_proxy_{name}", words, labels, registry=self._registry)
