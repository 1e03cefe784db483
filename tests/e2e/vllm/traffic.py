"""What the clients of the scenarios send: conversations that share something, and clients that spoil it.

Knows chat requests. Knows no server, no block size and no log. The clients pause, because vLLM tells its statistics
every ten seconds only, and one line of them is not yet a story.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from e2e.client import Message, prose, system, user

REQUESTS, PAUSE_SECONDS = 20, 1.5
HEAD = prose(1, 900)
"""A system prompt of many blocks."""
SHORT = prose(2, 100)

Send = Callable[[list[Message]], object]
Traffic = Callable[[Send], None]


def nothing(turn: int) -> str:
    """Head of a client that does not change the beginning of its prompts."""
    return ""


def clock(turn: int) -> str:
    """Head of a client that tells the time first."""
    return f"Now it is 10:{turn:02}:07 on 22 November 2026. "


def chat(head: Callable[[int], str] = nothing) -> Traffic:
    """One conversation: each request is the one before, a reply and a question more, but for what ``head`` does.

    The replies are the client's own, as long as a short sentence: those of random weights are no text.
    """

    def play(send: Send) -> None:
        talk: list[Message] = []
        for turn in range(REQUESTS):
            talk.append(user(prose(100 + turn, 90)))
            send([system(head(turn) + HEAD), *talk])
            talk.append({"role": "assistant", "content": prose(500 + turn, 30)})
            time.sleep(PAUSE_SECONDS)

    return play


def short_questions(send: Send) -> None:
    """Different questions below one short system prompt: about 200 tokens each, 100 of them the same."""
    for turn in range(REQUESTS):
        send([system(SHORT), user(prose(900 + turn, 60))])
        time.sleep(PAUSE_SECONDS)
