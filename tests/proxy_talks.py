"""Clients whose conversations begin alike, each with words of its own, and an in-process proxy that they share."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiohttp import ClientSession, TCPConnector, web
from yarl import URL

from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.relay import Relay

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
WORD = re.compile(r"\b(?:one|two)-\d{4}\b")
"""What conversations say that no other one says: the name of their client and their number."""
_TIME = re.compile(r"\b\d\d:\d\d:\d\d\b")
EACH = 16
"""Requests of a conversation at most."""


class Sending(NamedTuple):
    """A request of a client."""

    body: Any
    headers: dict[str, str]
    address: str = "127.0.0.1"
    """Local address that it is sent from."""
    path: str = CHAT


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def requests(word: str, number: int = 0, turns: int = 3, alike: int = 2) -> list[dict[str, Any]]:
    """The requests of a conversation; all but its first ``alike`` turns say ``word``, and so do tools and reminders.

    Each request has another tool and time, a reminder that the next one lacks, and no reasoning of earlier answers.
    Conversations of other numbers have other times.
    """
    found, messages = [], list[dict[str, Any]]()
    for turn in range(turns):
        said = "hi" if turn * 2 < alike else f"{word} asks {turn}"
        messages.append({"role": "user", "content": said})
        system = {"role": "system", "content": f"You are Marlow. It is {clock(number, turn)}."}
        reminder = {"role": "system", "content": f"{word} has {turn} left"}
        tools = [tool(f"{word}-{name}") for name in ("a", f"b{turn}")[turn % 2 :]]
        found.append({"model": "m", "messages": [system, *messages, reminder], "tools": tools})
        messages.append({"role": "assistant", "content": answer_to(said)})
    return found


def clock(number: int, turn: int) -> str:
    """Time of a request; no two conversations have the same."""
    seconds = number * EACH + turn
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def foreign(body: bytes, word: str, number: int) -> list[str]:
    """Words of other conversations in a body, and times of others; ``WORD`` finds all words."""
    text = body.decode()
    times = {clock(number, turn) for turn in range(EACH)}
    return [one for one in WORD.findall(text) if one != word] + [one for one in _TIME.findall(text) if one not in times]


def answer_to(said: str) -> str:
    """The same words to everybody who says hi."""
    return "Hello!" if said == "hi" else f"About {said}"


class Server:
    """Answers each chat with reasoning that repeats the words of its request, and keeps every body."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.marked: list[tuple[str, bytes]] = []
        """What each client says in ``X-Mark``, with the body."""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        data = await request.read()
        self.bodies.append(data)
        self.marked.append((request.headers.get("X-Mark", ""), data))
        body = json.loads(data)
        said = [message["content"] for message in body["messages"] if message["role"] == "user"][-1]
        words = " ".join(one["function"]["name"] for one in body["tools"][-1:])
        message = {"role": "assistant", "content": answer_to(said), "reasoning_content": f"Thinks of {words}"}
        return web.json_response({"id": "x", "choices": [{"index": 0, "message": message}]})


async def passed(sendings: Sequence[Sending], fixes: Sequence[str]) -> tuple[list[bytes], list[Exchange]]:
    """Send requests one after the other through a proxy; the bodies that reach the server, and what is told of them."""
    server, seen = Server(), list[Exchange]()
    upstream, port = await listening(server.answer)
    relay = Relay(
        URL(f"http://127.0.0.1:{port}"), "x", ProxyOptions(fixes=tuple(fixes)), lambda one, _: seen.append(one)
    )
    await relay.open()
    proxy, port = await listening(relay.handle)
    for sending in sendings:
        connector = TCPConnector(local_addr=(sending.address, 0), force_close=True)
        async with ClientSession(connector=connector) as client:
            data = sending.body if isinstance(sending.body, bytes) else json.dumps(sending.body).encode()
            url = f"http://127.0.0.1:{port}{sending.path}"
            async with client.post(url, data=data, headers=sending.headers) as found:
                await found.read()
    await relay.close()
    await proxy.cleanup()
    await upstream.cleanup()
    return server.bodies, seen


async def listening(handler: Any) -> tuple[web.ServerRunner, int]:
    """Serve on a free port."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]
