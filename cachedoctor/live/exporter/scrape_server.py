"""Serves the page that Prometheus reads, made with its own client library."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import cachedoctor
from cachedoctor.live.exporter.many_logs import Numbers
from cachedoctor.live.exporter.request_counts import Counts, LabelledCount
from cachedoctor.live.named_hosts import REFUSAL, NamedHosts

_NS = 1e9
_WHO = ("server", "model", "client_address")


class _CounterForm(NamedTuple):
    name: str
    """Name of the metric; the library appends ``_total``."""
    help: str
    labels: tuple[str, ...]
    scale: float = 1


_COUNTERS = {
    "tokens": _CounterForm(
        "cachedoctor_prompt_tokens",
        "Prompt tokens: reused; new (had to be computed); avoidable (recomputed, but a fix would save them); computed "
        "(no per-request data: new or avoidable); unknown (the log does not show how many were computed).",
        ("outcome", "cause", *_WHO),
    ),
    "ns": _CounterForm(
        "cachedoctor_prompt_processing_seconds",
        "Seconds spent computing prompts: avoidable or new.",
        ("outcome", "cause", *_WHO),
        _NS,
    ),
    "requests": _CounterForm("cachedoctor_requests", "Requests that ended.", _WHO),
    "lines": _CounterForm("cachedoctor_log_lines", "Lines of the log.", ("server",)),
    "unread": _CounterForm(
        "cachedoctor_log_lines_unrecognised", "Lines that are not a known server message.", ("server",)
    ),
}


class MetricsPage(Collector):
    """Returns the current metrics at each request."""

    def __init__(self, shown: Callable[[], Numbers | None]) -> None:
        """``shown`` is called from another thread, and returns an object that no longer changes."""
        self._shown = shown
        self._given: set[LabelledCount] | None = None
        """Counters that were exported before."""

    def describe(self) -> list[Metric]:
        """Describe no metrics in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; while logs are read for the first time, only the version."""
        build = GaugeMetricFamily("cachedoctor_build_info", "Version of cachedoctor.", labels=["version"])
        build.add_metric([cachedoctor.__version__], 1)
        yield build
        numbers = self._shown()
        if numbers is None:
            return
        yield from _counters(self._from_zero(numbers.counts))
        findings = GaugeMetricFamily(
            "cachedoctor_findings", "Current findings.", labels=["cause", "severity", "server"]
        )
        for labels, count in sorted(numbers.findings.items()):
            findings.add_metric(labels, count)
        yield findings
        readable = GaugeMetricFamily(
            "cachedoctor_log_readable", "Whether the log exists and is read.", labels=["server"]
        )
        for server, is_readable in sorted(numbers.readable.items()):
            readable.add_metric([server], is_readable)
        yield readable
        rates = GaugeMetricFamily(
            "cachedoctor_prefix_cache_hit_ratio",
            "Hit rate that the server logged last, over its last 1,000 requests, from 0 to 1.",
            labels=["server", "engine"],
        )
        for (server, engine), rate in sorted(numbers.hit_rates.items()):
            rates.add_metric([server, engine], rate)
        yield rates

    def _from_zero(self, counts: Counts) -> Counts:
        """Return the counters; a new one is 0 at first, because Prometheus does not take a first value for an increase.

        Those that are there at first keep theirs, which is of the past.
        """
        given, self._given = self._given, set(counts)
        if given is None:
            return counts
        return Counter({series: amount if series in given else 0 for series, amount in counts.items()})


def _counters(counts: Counts) -> Iterator[Metric]:
    families = {
        metric: CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
        for metric, counter in _COUNTERS.items()
    }
    for series, amount in sorted(counts.items()):
        counter = _COUNTERS[series.metric]
        values = [getattr(series, label) for label in counter.labels]
        families[series.metric].add_metric(values, amount / counter.scale if counter.scale != 1 else amount)
    yield from families.values()


MOST_READERS = 64
"""Connections at one time."""
_SILENT = 10.0
"""Seconds that a reader may neither send nor take anything."""


class _ScrapeServer(ThreadingHTTPServer):
    request_queue_size = 256

    def __init__(self, host: str, port: int, handler: type[MetricsHandler], hosts: NamedHosts, most: int) -> None:
        self.hosts, self._most = hosts, most
        self._open: dict[socket.socket, bool] = {}
        """Connections, the oldest first, and whether each has sent a request."""
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Take the address; the standard library would ask for its name, for seconds where no DNS answers."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a separate thread; if there are too many, the oldest connection without a request is closed."""
        with self._lock:
            if len(self._open) >= self._most:
                oldest = next((one for one, has_asked in self._open.items() if not has_asked), next(iter(self._open)))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # it has left by itself
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = False
        super().process_request(request, client_address)

    def has_asked(self, request: socket.socket) -> None:
        """The head of a request is complete: its connection is closed last if space is needed."""
        with self._lock:
            if request in self._open:
                self._open[request] = True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about readers that disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _ScrapeHandler(MetricsHandler):
    timeout = _SILENT

    def do_GET(self) -> None:  # noqa: N802  # named by the standard library
        """Return the page, whatever its path."""
        if not isinstance(self.server, _ScrapeServer):
            raise TypeError("a handler of another server")
        self.server.has_asked(self.connection)
        if not self.server.hosts.allow(self.headers.get_all("Host", []), self.path):
            self._refuse(403, REFUSAL)
        elif not _is_address(self.path):
            self._refuse(400, "the address cannot be read")
        else:
            super().do_GET()

    def _refuse(self, status: int, words: str) -> None:
        body = f"cachedoctor exporter: {words}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(
    host: str, port: int, page: Collector, hosts: NamedHosts, most: int = MOST_READERS
) -> tuple[int, Callable[[], None]]:
    """Serve the page in a thread; returns the port, and the function that stops it.

    Raises ``OSError``.
    """
    registry = CollectorRegistry()
    registry.register(page)
    server = _ScrapeServer(host, port, _ScrapeHandler.factory(registry), hosts, most)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return server.server_port, end


def _is_address(target: str) -> bool:
    try:
        urlsplit(target)
    except ValueError:
        return False
    return True
