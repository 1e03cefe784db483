"""Counters that are asked for: a running server again and again, Prometheus for a range, and whatever answers instead."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from command import one_line, run
from conftest import FIXTURES

from cachedoctor.doctor.extras.polled_metrics import Asked, ask
from cachedoctor.metrics import dump_spans, prometheus_range
from cachedoctor.model import CacheDoctorError, Counters
from cachedoctor.sources import http

RANGE = FIXTURES / "vllm" / "prometheus_range.json"
"""What Prometheus 2.42 answered: a server that was scraped every second, in the middle of which it began anew."""
PAGE = (FIXTURES / "vllm" / "vllm032_dp2_default.metrics.txt").read_bytes()


class Web:
    """A web server whose pages are made by ``page``: a status and a body for each path."""

    def __init__(self, page: Callable[[str], tuple[int, bytes]]) -> None:
        self.asked: list[tuple[str, str | None]] = []
        web = self

        class _Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                web.asked.append((self.path, self.headers.get("Authorization")))
                status, body = page(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def web() -> Iterator[Callable[[Callable[[str], tuple[int, bytes]]], Web]]:
    servers: list[Web] = []

    def make(page: Callable[[str], tuple[int, bytes]]) -> Web:
        servers.append(Web(page))
        return servers[-1]

    yield make
    for one in servers:
        one.server.shutdown()
        one.server.server_close()


Make = Callable[[Callable[[str], tuple[int, bytes]]], Web]


def dump(tokens: int, started: float = 100.0) -> bytes:
    labels = '{engine="0",model_name="m"}'
    return (
        f"vllm:prompt_tokens_total{labels} {tokens}\n"
        f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="local_cache_hit"}} {tokens // 2}\n'
        f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="local_compute"}} {tokens - tokens // 2}\n'
        f"process_start_time_seconds {started}\n"
    ).encode()


def counted(asked: Asked, waits: int = 0) -> list[list[Counters]]:
    """Lives of the only server that answers."""
    (server,) = dump_spans.lives(ask(asked, lambda _: None).dumps)
    return server


# ---- a running server


def test_of_many_times_the_first_and_the_last_count(web: Make) -> None:
    pages = iter([dump(100), dump(700), dump(1100)])
    last = dump(1500)
    server = web(lambda path: (200, next(pages, last)))
    moments = iter([0.0, 1.0, 2.0, 3.0, 4.0])
    waited: list[float] = []
    asked = Asked([server.url], every=10.0, length=3.0)
    heard = _timed(asked, moments, waited)
    ((life,),) = [[spans for spans in lives] for lives in dump_spans.lives(heard)]
    (only,) = life
    assert (only.prompt_tokens, only.computed, only.cached_local) == (1400, 700, 700)
    assert only.since is not None
    assert only.since.startswith(server.url)
    assert waited == [2.0, 1.0]
    assert {path for path, _ in server.asked} == {"/metrics"}


def _timed(asked: Asked, moments: Iterator[float], waited: list[float]) -> list:  # type: ignore[type-arg]
    """Ask by a clock of the test's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 0.0)
        patch.undo()
    return ask(asked, waited.append).dumps
