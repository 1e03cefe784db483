"""The HTTP side of the proxy: heads of any bytes, names of the host, heads that never end, servers that stand still."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import time
from collections.abc import Iterator

import proxy_heads
import pytest
from proxy_heads import HeadServer
from running_proxy import Running, mute_server, through

from cachedoctor.cli.common_options import allowed_hosts
from cachedoctor.live.named_hosts import NamedHosts, host_names
from cachedoctor.live.proxy.connections import Limits, is_writable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
GET = b"GET /x HTTP/1.1\r\nHost: %b\r\n\r\n"


@pytest.fixture
def server() -> Iterator[HeadServer]:
    found = HeadServer()
    found.answer = ANSWER
    yield found
    found.close()


async def asked(port: int, request: bytes, host: str = "127.0.0.1") -> bytes:
    """Send bytes and read all of the answer."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    try:
        return await _message(reader)
    finally:
        writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while not proxy_heads.is_whole(data):
        part = await asyncio.wait_for(reader.read(1 << 16), 20)
        if not part:
            break
        data += part
    return data


def status(answer: bytes) -> int:
    return int(answer[9:12])


# ---- bytes


def test_heads_arrive_byte_for_byte_or_are_refused(server: HeadServer) -> None:
    counts: dict[str, int] = {}

    async def client(proxy: Running) -> list[str]:
        return await asyncio.to_thread(proxy_heads.differences, server, proxy.port, range(150), counts)

    assert through(server.port, client) == []
    assert set(counts) == {"passed", "refused requests", "refused answers"}
    assert counts["passed"] > 40


def test_the_exchanges_hold_all_byte_values_in_all_places() -> None:
    """Otherwise the fuzzer could not find a byte that vanishes."""
    chance = random.Random(1)
    found = {place: set[int]() for place in ("target", "name", "value", "reason")}
    for _ in range(20_000):
        found["target"] |= set(proxy_heads.target(chance))
        found["reason"] |= set(proxy_heads.text(chance))
        for name, value in proxy_heads.fields(chance):
            found["name"] |= set(name)
            found["value"] |= set(value)
    assert {place: len(values) for place, values in found.items()} == dict.fromkeys(found, 256)


@pytest.mark.parametrize("target", [b"/x?", b"/x#y", b"/x?#", b"/%zz//../y?a?b", b"/"])
def test_a_target_keeps_all_of_its_bytes(server: HeadServer, target: bytes) -> None:
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
    assert status(through(server.port, lambda proxy: asked(proxy.port, request))) == 200
    assert server.given is not None
    assert server.given.start == b"GET %b HTTP/1.1" % target


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"GET /x", b"X-User: adm\xffin"),
        (b"GET /x", b"X-\xc3\xa9: 1"),
        (b"OPTIONS *", b"X: 1"),
        (b"CONNECT a:1", b"X: 1"),
    ],
)
def test_a_request_that_cannot_be_written_again_is_a_400(server: HeadServer, line: bytes, field: bytes) -> None:
    request = b"%b HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % (line, field)
    answer = through(server.port, lambda proxy: asked(proxy.port, request))
    assert status(answer) == 400
    assert server.given is None


@pytest.mark.parametrize("head", [b"200 OK\r\nX-A: a\xffb", b"200 O\xffK\r\nX-A: ab", b"200 OK\r\nX-\xe9: ab"])
def test_an_answer_that_cannot_be_written_again_is_a_502(server: HeadServer, head: bytes) -> None:
    server.answer = b"HTTP/1.1 %b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" % head

    async def client(proxy: Running) -> tuple[bytes, list[tuple[int, str]]]:
        answer = await asked(proxy.port, GET % b"localhost")
        return answer, [(seen.status, seen.fault) for seen in proxy.told]

    answer, told = through(server.port, client)
    assert status(answer) == 502
    assert answer.count(b"\n", answer.index(b"\r\n\r\n") + 4) == 1
    assert b"cachedoctor proxy: http://127.0.0.1:" in answer
    assert [code for code, _ in told] == [502]


def test_text_in_utf8_is_writable_and_control_characters_are_not() -> None:
    assert is_writable(["OK"], [(b"A", "é\t日".encode())])
    assert not is_writable(["O\udcffK"], [])
    assert not is_writable(["OK"], [("é".encode(), b"")])
    for value in (b"\xff", b"\xed\xa0\x80", b"\xc3", b"a\x00", b"a\x0bb", b"a\x7f"):
        assert not is_writable([], [(b"A", value)]), value


# ---- names of the host

PASS = (
    "localhost", "LOCALHOST:8090", "localhost.", "127.0.0.1", "127.0.0.1:8090", "10.1.2.3", "[::1]", "[::1]:8090",
    "[fe80::1%25eth0]:1", "localhost:", "\tlocalhost ",
)  # fmt: skip
FAIL = (
    "evil.example", "evil.example:8090", "localhost.evil.example", "127.0.0.1.evil.example", "", ":8090", "::1",
    "::1:8090", "[::1", "[evil.example]", "[127.0.0.1]", "127.1", "0x7f000001", "2130706433", "127.0.0.01",
    "localhost..", "evil@localhost", "localhost@evil.example", "localhost, evil.example", "localhost evil",
    "localhost:80:90", "localhost:http", "localhost/", "localhost\udcff", "loc\u212aalhost",
)  # fmt: skip


def test_on_loopback_localhost_and_addresses_pass() -> None:
    hosts = NamedHosts("127.0.0.1")
    assert [host for host in PASS if not hosts.allow([host], "/")] == []
    assert [host for host in FAIL if hosts.allow([host], "/")] == []
    assert not hosts.allow([], "/")
    assert not hosts.allow(["localhost", "localhost"], "/")


def test_names_that_were_given_pass() -> None:
    hosts = NamedHosts("localhost", ("Gateway.Example", "box."))
    assert all(hosts.allow([host], "/") for host in ("gateway.example:1", "GATEWAY.EXAMPLE.", "box", "localhost"))
    assert not hosts.allow(["other.example"], "/")


def test_elsewhere_names_are_checked_only_where_some_were_given() -> None:
    assert NamedHosts("0.0.0.0").allow(["evil.example"], "http://other/")
    assert NamedHosts("0.0.0.0").allow([], "/")
    hosts = NamedHosts("0.0.0.0", ("box",))
    assert hosts.allow(["box:1"], "/")
    assert hosts.allow(["10.0.0.1"], "/")
    assert not hosts.allow(["evil.example"], "/")


def test_a_target_must_not_name_another_host() -> None:
    hosts = NamedHosts("127.0.0.1")
    assert hosts.allow(["localhost"], "http://localhost:8090/x")
    assert hosts.allow(["localhost"], "http://user:word@[::1]/x")
    assert hosts.allow(["localhost"], "/x?u=http://evil.example/")
    for target in ("http://evil.example/x", "http://localhost@evil.example/", "HTTP://evil.example", "http:///x"):
        assert not hosts.allow(["localhost"], target), target


@pytest.mark.parametrize("name", ["", "a:1", "http://a", "a b", "[::1]", "a/b", "*", "é", "-\n"])
def test_what_is_not_the_name_of_a_host_is_refused(name: str) -> None:
    assert host_names(["box.lan", "my_box"]) == ("box.lan", "my_box")
    with pytest.raises(ValueError, match=f"^{re.escape(name)}$"):
        host_names(["box", name])


def test_a_host_with_a_port_is_wrong_usage() -> None:
    import typer

    assert allowed_hosts(["box.lan"]) == ("box.lan",)
    with pytest.raises(typer.BadParameter, match=r"--allow-host 'box\.lan:1' is not a host name"):
        allowed_hosts(["box.lan:1"])


def test_another_host_is_a_403_before_the_server_hears_of_it(server: HeadServer) -> None:
    async def client(proxy: Running) -> list[int]:
        return [status(await asked(proxy.port, GET % host)) for host in (b"evil.example", b"localhost", b"box.lan:1")]

    evil = b"GET http://evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    several = b"GET /x HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    none = b"GET /x HTTP/1.0\r\n\r\n"

    async def others(proxy: Running) -> list[bytes]:
        return [await asked(proxy.port, request) for request in (evil, several, none, GET % b"evil.example")]

    answers = through(server.port, others)
    assert [status(answer) for answer in answers] == [403, 400, 403, 403]
    assert server.given is None
    assert answers[-1].partition(b"\r\n\r\n")[2].count(b"\n") == 1
    assert b"--allow-host NAME" in answers[-1]
    assert through(server.port, client, hosts=("box.lan",)) == [403, 200, 200]
    assert through(server.port, client, listen="0.0.0.0") == [200, 200, 200]


def test_the_page_of_counters_checks_names_too(server: HeadServer) -> None:
    async def client(proxy: Running) -> list[int]:
        page = b"GET /metrics HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
        return [status(await asked(proxy.metrics_port, page % host)) for host in (b"evil.example", b"127.0.0.1:1")]

    assert through(server.port, client, metrics=True) == [403, 200]


# ---- heads that never end


async def closed(port: int, part: bytes) -> bytes:
    """Send the first bytes of a head; gives what comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(part)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


def test_a_head_that_does_not_end_is_closed(server: HeadServer) -> None:
    async def client(proxy: Running) -> list[bytes]:
        ways = (b"", b"GET / HT", (GET % b"localhost")[:-2])
        return list(await asyncio.gather(*(closed(proxy.port, part) for part in ways)))

    answers = through(server.port, client, limits=Limits(head=0.1))
    assert [answer[:12] for answer in answers] == [b"", b"HTTP/1.1 408", b"HTTP/1.1 408"]


def test_a_byte_now_and_then_gives_a_head_no_more_time(server: HeadServer) -> None:
    async def client(proxy: Running) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /")
        for sent in range(200):
            writer.write(b"x")
            with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(1), 0.02)
                return sent
        return 200

    assert through(server.port, client, limits=Limits(head=0.2)) < 200


def test_bodies_answers_and_pauses_between_requests_have_more_time() -> None:
    """Each takes longer than a head may."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        await asyncio.sleep(0.15)
        writer.write(ANSWER)
        writer.close()

    async def scenario(proxy: Running) -> list[int]:
        upstream = await asyncio.start_server(slow, "127.0.0.1", upstream_port)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        found = []
        for _ in range(2):
            writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
            await asyncio.sleep(0.15)
            writer.write(b"}")
            found.append(status(await _message(reader)))
            await asyncio.sleep(0.15)
        writer.close()
        upstream.close()
        return found

    with socket.create_server(("127.0.0.1", 0)) as taken:
        upstream_port = taken.getsockname()[1]
    assert through(upstream_port, scenario, limits=Limits(head=0.1)) == [200, 200]


def test_the_second_head_of_a_connection_has_a_limit_too(server: HeadServer) -> None:
    async def client(proxy: Running) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(GET % b"localhost")
        assert status(await _message(reader)) == 200
        writer.write(b"GET / HT")
        return await asyncio.wait_for(reader.read(), 20)

    server.answer = ANSWER.replace(b"Connection: close\r\n", b"")
    assert through(server.port, client, limits=Limits(head=0.1)).startswith(b"HTTP/1.1 408")


def test_open_heads_are_bounded_and_the_oldest_makes_room(server: HeadServer) -> None:
    async def client(proxy: Running) -> tuple[int, list[bool]]:
        streams = []
        for _ in range(12):
            streams.append(await asyncio.open_connection("127.0.0.1", proxy.port))
            streams[-1][1].write(b"GET / HT")
            await asyncio.sleep(0.01)
        answer = await asked(proxy.port, GET % b"localhost")
        await asyncio.sleep(0.1)
        found = [reader.at_eof() or bool(reader._buffer) for reader, _ in streams]  # type: ignore[attr-defined]
        for _, writer in streams:
            writer.close()
        return status(answer), found

    code, are_closed = through(server.port, client, limits=Limits(heads=5))
    assert code == 200
    assert are_closed == [True] * 8 + [False] * 4


# ---- the end


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_end_does_not_wait_for_ever_for_a_server_that_stands_still(is_whole: bool) -> None:
    """A stopped process accepts connections, and answers nothing; or a client never sends the rest of its body."""
    request = GET % b"localhost" if is_whole else b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"

    clients = []

    async def client(proxy: Running) -> Running:
        clients.append(await asyncio.open_connection("127.0.0.1", proxy.port))
        clients[0][1].write(request)
        while not proxy.under_way:
            await asyncio.sleep(0.01)
        return proxy

    with mute_server() as port:
        begun = time.monotonic()
        proxy = through(port, client, limits=Limits(drain=0.2))
    assert time.monotonic() - begun >= 0.2
    assert [seen.fault for seen in proxy.told] == ["the proxy was stopped"]


def test_the_end_waits_as_long_as_bytes_pass() -> None:
    """An answer in eight parts takes longer than the silence that the end allows."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.1)
            writer.write(b"x")
        writer.close()

    async def client(proxy: Running) -> bytes:
        upstream = await asyncio.start_server(drip, "127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(GET % b"localhost")
        while not proxy.under_way:
            await asyncio.sleep(0.01)
        proxy.end()
        try:
            return await _message(reader)
        finally:
            upstream.close()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert through(port, client, limits=Limits(drain=0.5)).endswith(b"xxxxxxxx")


def test_a_connect_without_a_target_is_a_400(server: HeadServer) -> None:
    """aiohttp takes it for a request of HTTP/0.9, whose target it does not give."""
    for request in (b"CONNECT \r\n\r\n", b"CONNECT \n\r\n{}"):
        answer = through(server.port, lambda proxy, sent=request: asked(proxy.port, sent))  # type: ignore[misc]
        assert status(answer) == 400, answer
