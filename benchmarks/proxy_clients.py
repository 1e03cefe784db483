"""Have two clients talk through one ``cachedoctor proxy`` with every fix, and look for text of one with the other.

usage: proxy_clients.py [--conversations 1000] [--requests 6] [--jobs 4] [--one-key]

All conversations begin with the same words. After those, each says words and times of its own, and so do its tools,
reminders and the reasoning of its answers. Requests are sent in random order. Every body that reaches the server is
searched for words and times of any other conversation, of the other client or of the same one. ``--one-key``: both
clients send the same key. Exit status 1 where one is found, or where the fixes changed no body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from aiohttp import ClientSession

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from proxy_fuzz import running
from proxy_talks import CHAT, EACH, MESSAGES, WORD, Server, foreign, listening, requests

from cachedoctor.live.proxy.body_fixes import NAMES

CLIENTS = ("one", "two")
MOST = 24 * 3600 // EACH


class Conversation:
    """What one client sends, request by request."""

    def __init__(self, number: int, count: int, one_key: bool) -> None:
        self.number = number
        self.client = CLIENTS[number % 2]
        self.word = f"{self.client}-{number:04d}"
        self.path = MESSAGES if number % 8 in (6, 7) else CHAT
        self.left = requests(self.word, number, count, alike=(2, 2, 4, 4, 6)[number % 5])
        self.key = "sk-both" if one_key else f"sk-{self.client}"
        self.sent: list[bytes] = []

    async def send(self, client: ClientSession, port: int) -> None:
        """Send the next request."""
        self.sent.append(json.dumps(self.left.pop(0)).encode())
        headers = {"Authorization": f"Bearer {self.key}", "X-Mark": f"{self.number}.{len(self.sent) - 1}"}
        url = f"http://127.0.0.1:{port}{self.path}"
        async with client.post(url, data=self.sent[-1], headers=headers) as found:
            if found.status != 200:
                raise AssertionError(f"status {found.status}")
            await found.read()


async def talk(conversations: list[Conversation], count: int, jobs: int, port: int) -> None:
    """Have all conversations: their first requests, then all others in random order, some right after another."""
    chance = random.Random(7)
    first = list(conversations)
    rest = [one for one in conversations for _ in range((count - 1) // 2)]
    chance.shuffle(first)
    chance.shuffle(rest)
    order = first + rest + [one for one in conversations for _ in range(count - 1 - (count - 1) // 2)]
    locks = {one.number: asyncio.Lock() for one in conversations}
    waiting = iter(order)

    async def work(client: ClientSession) -> None:
        for one in waiting:
            async with locks[one.number]:
                await one.send(client, port)

    async with ClientSession() as client:
        await asyncio.gather(*(work(client) for _ in range(jobs)))


def judged(conversations: list[Conversation], marked: list[tuple[str, bytes]]) -> bool:
    """Say what was found in the bodies that reached the server; gives whether all is as it must be."""
    other_client = other_talk = changed = 0
    for mark, body in marked:
        number, request = map(int, mark.split("."))
        one = conversations[number]
        found = foreign(body, one.word, number)
        for text in found[:3]:
            print(f"conversation {one.word}: {text} in its request {request}")
        other_client += any(WORD.match(text) and not text.startswith(one.client) for text in found)
        other_talk += bool(found)
        changed += body != one.sent[request]
    print(
        f"{len(conversations):,} conversations of {len(CLIENTS)} clients, {len(marked):,} requests, "
        f"{changed:,} changed by fixes; text of the other client in {other_client}, of any other conversation in "
        f"{other_talk}"
    )
    return not other_talk and changed > 0


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--one-key", action="store_true")
    given = parser.parse_args()
    if given.conversations > MOST or not 2 <= given.requests <= EACH:
        parser.error(f"at most {MOST:,} conversations of 2 to {EACH} requests")
    begun, server = time.monotonic(), Server()
    conversations = [Conversation(n, given.requests, given.one_key) for n in range(given.conversations)]
    runner, upstream = await listening(server.answer)
    with running(f"http://127.0.0.1:{upstream}", *(part for name in NAMES for part in ("--fix", name))) as (port, _):
        await talk(conversations, given.requests, given.jobs, port)
    await runner.cleanup()
    is_sound = judged(conversations, server.marked)
    print(f"{time.monotonic() - begun:.0f} s")
    return not is_sound


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
