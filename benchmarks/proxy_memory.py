"""Send many requests through ``cachedoctor proxy`` with its fixes, and watch its memory.

usage: proxy_memory.py [--requests 100000]

Eight clients have conversations of twelve requests, one after the other, with a clock in the system prompt, tools that
come and go, and answers with reasoning. Prints the resident memory of the proxy's processes along the way; exit status
1 when the last half adds more than 2 MiB to one of them. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from proxy_exchanges import free_port
from proxy_fuzz import running

from cachedoctor.live.proxy.body_fixes import NAMES

USAGE = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 10}}
SAID = {"role": "assistant", "content": "Ho", "reasoning_content": "Let me think"}
ANSWER = json.dumps({"id": "x", "choices": [{"index": 0, "message": SAID}], "usage": USAGE}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
CLIENTS, TURNS, MARKS, MOST = 8, 12, 20, 2.0


class Server(asyncio.Protocol):
    """Gives each request of a connection the same answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._data = transport, b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, sent = self._data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        if length and len(sent) >= int(length):
            self._data = b""
            self._transport.write(HEAD + ANSWER)


def body(client: int, conversation: int, turns: int, number: int) -> bytes:
    """The request with so many turns of a conversation."""
    messages = [{"role": "system", "content": f"It is {number % 24:02d}:{number % 60:02d}. Be kind. " * 3}]
    for turn in range(turns):
        messages += [{"role": "user", "content": f"Hi {client} {conversation} {turn} " * 4}]
        messages += [{"role": "assistant", "content": "Ho"}] * (turn < turns - 1)
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")[number % 2 :]]
    return json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()


def resident(pid: int) -> list[float]:
    """MiB of a process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    status = [Path(f"/proc/{process}/status").read_text() for process in (pid, *children)]
    return [int(text.partition("VmRSS:")[2].split()[0]) / 1024 for text in status]


async def client(port: int, number: int, numbers: count[int], most: int, marks: list[list[float]], pid: int) -> None:
    """Have conversations until all requests are sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for conversation in count():
        for turns in range(1, TURNS + 1):
            sent = next(numbers)
            if sent > most:
                writer.close()
                return
            data = body(number, conversation, turns, sent)
            writer.write(REQUEST % len(data) + data)
            await reader.readuntil(b"\r\n\r\n")
            if await reader.readexactly(len(ANSWER)) != ANSWER:
                raise AssertionError("another answer")
            if sent % (most // MARKS) == 0:
                marks.append(resident(pid))
                print(f"{sent:,} requests: {', '.join(f'{one:.1f}' for one in marks[-1])} MiB", flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    most = max(MARKS, parser.parse_args().requests)
    upstream, marks, numbers, begun = free_port(), list[list[float]](), count(1), time.monotonic()
    options = [option for name in NAMES for option in ("--fix", name)]
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", upstream, backlog=256)
    with running(f"http://127.0.0.1:{upstream}", *options) as (port, pid):
        await asyncio.gather(*(client(port, number, numbers, most, marks, pid) for number in range(CLIENTS)))
    server.close()
    grown = max(last - middle for last, middle in zip(marks[-1], marks[MARKS // 2 - 1], strict=True))
    print(f"{most:,} requests in {time.monotonic() - begun:.0f} s; the last half added {grown:.1f} MiB")
    return grown > MOST


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
