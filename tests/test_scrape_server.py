"""The exporter's HTTP page: silent readers, names of the host, and requests that are none."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from command import wait_for
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cachedoctor.live.exporter import scrape_server
from cachedoctor.live.named_hosts import NamedHosts

LOCAL = NamedHosts("127.0.0.1")


class OneNumber(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("some_number", "A number.", value=7)


@contextlib.contextmanager
def page(hosts: NamedHosts = LOCAL, most: int = scrape_server.MOST_READERS) -> Iterator[int]:
    port, end = scrape_server.serve("127.0.0.1", 0, OneNumber(), hosts, most)
    try:
        yield port
    finally:
        end()


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def answered(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_150_silent_readers_keep_nobody_out() -> None:
    with page() as port, contextlib.ExitStack() as closing:
        silent = []
        for number in range(150):
            silent.append(closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)))
            if number % 2:
                silent[-1].sendall(b"GET /metrics HT")
        assert "some_number 7.0" in scraped(port)
        # The oldest were closed to make room, the newest were not.
        assert silent[0].recv(1) == b""
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)


def test_a_reader_that_has_asked_is_the_last_to_make_room() -> None:
    """The page is longer than what the system takes off the server's hands for a reader that reads nothing."""

    class Long(Collector):
        def collect(self) -> Iterator[Metric]:
            for number in range(100):
                yield GaugeMetricFamily(f"number_{number}", "x" * 200_000, value=7)

    port, end = scrape_server.serve("127.0.0.1", 0, Long(), LOCAL, 3)
    with contextlib.ExitStack() as closing:
        closing.callback(end)
        reader = closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = reader.recv(1 << 16)
        for _ in range(8):
            closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        got += b"".join(iter(lambda: reader.recv(1 << 20), b""))
    assert got.endswith(b"number_99 7.0\n")


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nHost: local"])
def test_a_silent_reader_is_closed_without_a_word(
    begun: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scrape_server._ScrapeHandler, "timeout", 0.1)
    with page() as port:
        assert answered(port, begun) == b""
    assert capfd.readouterr() == ("", "")


def test_a_reader_that_leaves_is_not_trouble(capfd: pytest.CaptureFixture[str]) -> None:
    with page() as port:
        for sent in (b"", b"GET /", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                client.sendall(sent)
        wait_for(lambda: "some_number" in scraped(port), "a page")
    assert capfd.readouterr() == ("", "")


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: LocalHost.:1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: box.lan\r\n\r\n", 200),
        (b"GET http://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\nHost: \xff\r\n\r\n", 403),
        (b"GET ?[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET x://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
        (b"GET x:[//[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET //[/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    ],
)
def test_what_is_answered(request_: bytes, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    with page(NamedHosts("127.0.0.1", ("box.lan",))) as port:
        answer = answered(port, request_)
    assert int(answer[9:12]) == status
    assert (b"some_number 7.0" in answer) == (status == 200)
    if status == 403:
        assert answer.partition(b"\r\n\r\n")[2].count(b"\n") == 1
        assert b"--allow-host NAME" in answer
    assert capfd.readouterr() == ("", "")


def test_an_address_that_cannot_be_read_is_a_400(capfd: pytest.CaptureFixture[str]) -> None:
    with page(NamedHosts("0.0.0.0")) as port:
        answer = answered(port, b"GET x://[ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered(port, b"\x16\x03\x01 \xff\r\n\r\n")
    assert int(answer[9:12]) == 400
    assert capfd.readouterr() == ("", "")
