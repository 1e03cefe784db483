"""Measure what ``cachedoctor proxy`` adds to the first byte of streams, beside haproxy in the same run.

usage: proxy_latency.py [--streams 200] [--rounds 5]

So many clients begin a stream at once and read it to its end; the server sends an event every 250 ms. Each row is the
time from the request to the first byte of the body, direct, through haproxy and through the
proxy, in turns. Added is the difference to direct of the same quantile; the ratio is that of the proxy to haproxy.
Client, server and proxies share the machine: compare rows of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from proxy_exchanges import free_port
from proxy_fuzz import proxy

BODY = b'{"messages":[{"role":"user","content":"' + b"word " * 2000 + b'"}],"stream":true}'
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
EVENTS, PAUSE = 16, 0.25
CONFIG = """
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend f
  bind 127.0.0.1:%d
  default_backend b
backend b
  option http-server-close
  option http-no-delay
  http-reuse never
  server s 127.0.0.1:%d
"""


def serve(port: int) -> None:
    """Answer each request with a stream."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(EVENTS):
                writer.write(b'd\r\ndata: {"a":1\n\r\n')
                await writer.drain()
                await asyncio.sleep(PAUSE)
            writer.write(b"0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
        await server.serve_forever()

    asyncio.run(main())


async def stream(port: int, delay: float) -> float:
    """Seconds to the first byte of a body."""
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.perf_counter()
    writer.write(HEAD % len(BODY) + BODY)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"data:")
    first = time.perf_counter() - begun
    await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    return first


async def streams(port: int, count: int) -> list[float]:
    """All streams are open together; they begin one after the other, as those of people do."""
    return await asyncio.gather(*(stream(port, number * EVENTS * PAUSE / 2 / count) for number in range(count)))


@contextmanager
def haproxy(port: int, upstream: int) -> Iterator[None]:
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(CONFIG % (port, upstream))
        config.flush()
        process = subprocess.Popen(["haproxy", "-db", "-q", "-f", config.name], stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            yield
        finally:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    upstream, peer = free_port(), free_port()
    server = multiprocessing.Process(target=serve, args=(upstream,), daemon=True)
    server.start()
    time.sleep(0.5)
    found: dict[str, list[float]] = {}
    with proxy(f"http://127.0.0.1:{upstream}") as ours, haproxy(peer, upstream):
        rows = {"direct": upstream, "haproxy": peer, "cachedoctor proxy": ours}
        for _ in range(given.rounds):
            for name, port in rows.items():
                found.setdefault(name, []).extend(asyncio.run(streams(port, given.streams)))
    server.terminate()
    marks = {name: quantiles(times, n=100) for name, times in found.items()}
    print(f"{given.streams} streams at a time, {given.rounds} rounds; milliseconds to the first byte")
    for name, cuts in marks.items():
        added = [1000 * (cuts[at] - marks["direct"][at]) for at in (49, 98)]
        print(
            f"{name:18} median {1000 * cuts[49]:6.2f}  99th {1000 * cuts[98]:6.2f}"
            f"  added {added[0]:6.2f} {added[1]:6.2f}"
        )
    print(f"ratio to haproxy: median {marks['cachedoctor proxy'][49] / marks['haproxy'][49]:.2f}")


if __name__ == "__main__":
    if shutil.which("haproxy") is None:
        sys.exit("haproxy is not installed: apt-get install haproxy")
    main()
