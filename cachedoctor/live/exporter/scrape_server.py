"""Serves the page that Prometheus reads. Knows HTTP; knows no metric.

Readers that say nothing hold a connection, never the page: there are at most so many of them, and a new one takes the
place of the oldest that has not asked yet.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.registry import Collector

from cachedoctor.live.named_hosts import REFUSAL, NamedHosts

MOST_READERS = 64
"""Connections at one time."""
_SILENT = 10.0
"""Seconds that a reader may send or take nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 256

    def __init__(self, host: str, port: int, handler: type[MetricsHandler], hosts: NamedHosts, most: int) -> None:
        self.hosts, self._most = hosts, most
        self._open: dict[socket.socket, bool] = {}
        """Connections, the oldest first, and whether they have asked."""
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Take the address; the standard library would ask for its name, for seconds where no DNS answers."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; where there are too many, the oldest that has not asked is closed."""
        with self._lock:
            if len(self._open) >= self._most:
                oldest = next((one for one, has_asked in self._open.items() if not has_asked), next(iter(self._open)))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # it has left by itself
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = False
        super().process_request(request, client_address)

    def has_asked(self, request: socket.socket) -> None:
        """The head of a request is complete: its connection makes room last."""
        with self._lock:
            if request in self._open:
                self._open[request] = True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of readers that left."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(MetricsHandler):
    timeout = _SILENT

    def do_GET(self) -> None:  # noqa: N802  # named by the standard library
        """Give the page, whatever its path."""
        if not isinstance(self.server, _Server):
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
    """Serve the page in a thread; returns the port, and what ends it. Raises ``OSError``."""
    registry = CollectorRegistry()
    registry.register(page)
    server = _Server(host, port, _Handler.factory(registry), hosts, most)
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
