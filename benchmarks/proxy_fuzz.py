"""Compare random exchanges through ``cachedoctor proxy`` with the same on a direct connection.

usage: proxy_fuzz.py [--exchanges 2000] [--first 0] [--jobs 4]

What a client is given (status, reason, fields in their order, body, whether it is whole) and what the server is sent
(method, target, fields, body) must be the same; only fields about one connection and Via may differ, and an answer that
is not HTTP becomes a 502 of one line. Exit status 1 if anything else does. The server is ``tests/proxy_exchanges.py``.

As many exchanges follow whose heads hold any of the 256 byte values (``tests/proxy_heads.py``): they arrive byte for
byte, or are refused with 400 or 502.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import proxy_heads
from proxy_exchanges import Server, differences, free_port


@contextlib.contextmanager
def proxy(upstream: str, *options: str) -> Iterator[int]:
    """Run the proxy; gives its port."""
    with running(upstream, *options) as (port, _):
        yield port


@contextlib.contextmanager
def running(upstream: str, *options: str) -> Iterator[tuple[int, int]]:
    """Run the proxy; gives its port and the number of its process."""
    port = free_port()
    command = [sys.executable, "-m", "cachedoctor", "proxy", "--upstream", upstream, "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # says that it listens
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=4)
    given = parser.parse_args()
    server, begun = Server(), time.monotonic()
    seeds = range(given.first, given.first + given.exchanges)
    parts = [seeds[job :: given.jobs] for job in range(given.jobs)]
    with proxy(f"http://127.0.0.1:{server.port}") as port, ThreadPoolExecutor(given.jobs) as pool:
        found = [line for lines in pool.map(lambda part: differences(server, port, part), parts) for line in lines]
    server.close()
    counts: dict[str, int] = {}
    heads = proxy_heads.HeadServer()
    with proxy(f"http://127.0.0.1:{heads.port}") as port:
        found += proxy_heads.differences(heads, port, seeds, counts)
    heads.close()
    print("\n".join(found[:40]))
    print("heads of any bytes:", ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())))
    print(f"2 x {given.exchanges:,} exchanges, {len(found)} differences, {time.monotonic() - begun:.0f} s")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
