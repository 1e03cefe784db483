"""What the clients of the scenarios send: conversations that share something, and clients that spoil it.

  The clients pause, because vLLM tells its statistics
every ten seconds only, and one line of them is not yet a story.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol

from e2e.client import Message, prose, system, user

REQUESTS, PAUSE_SECONDS = 20, 1.5
HEAD = prose(1, 900)
"""A system prompt of many blocks."""
SHORT = prose(2, 100)


class Send(Protocol):
    """Sends messages, and fields of the body beside them."""

    def __call__(self, messages: list[Message], **more: Any) -> object: ...


Traffic = Callable[[Send], None]


def nothing(turn: int) -> str:
    """Head of a client that does not change the beginning of its prompts."""
    return ""


def clock(turn: int) -> str:
    """Head of a client that tells the time first."""
    return f"Now it is 10:{turn:02}:07 on 22 November 2026. "


def chat(head: Callable[[int], str] = nothing) -> Traffic:
    """One conversation: each request is the one before, a reply and a question more, but for what ``head`` does.

    The replies are the client's own, as long as a short sentence: those of random weights are not text.
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


def one_shots(send: Send) -> None:
    """Documents that share nothing, each with one question."""
    for turn in range(2 * REQUESTS):
        send([user(prose(2000 + turn, 1500))])
        time.sleep(PAUSE_SECONDS / 2)


def batch_beside_agent(send: Send) -> None:
    """An agent that only appends, and between its turns three documents of a batch job."""
    talk: list[Message] = [system(HEAD)]
    for turn in range(REQUESTS // 2):
        talk.append(user(prose(100 + turn, 90)))
        send(list(talk))
        talk.append({"role": "assistant", "content": prose(500 + turn, 30)})
        for document in range(3):
            send([user(prose(3000 + 3 * turn + document, 2400))])
            time.sleep(PAUSE_SECONDS / 3)


def clock_beside_healthy(send: Send) -> None:
    """A chat that only grows, and in turn with it one of another client that tells the time first."""
    good: list[Message] = [system(HEAD)]
    bad: list[Message] = []
    other = prose(3, 1200)
    for turn in range(REQUESTS):
        good.append(user(prose(100 + turn, 90)))
        send(list(good))
        good.append({"role": "assistant", "content": prose(500 + turn, 30)})
        bad.append(user(prose(700 + turn, 90)))
        send([system(clock(turn) + other), *bad])
        bad.append({"role": "assistant", "content": prose(800 + turn, 30)})
        time.sleep(PAUSE_SECONDS)


def salted(send: Send) -> None:
    """One system prompt and different questions, each with a salt of its own."""
    for turn in range(REQUESTS):
        send([system(HEAD), user(prose(900 + turn, 60))], cache_salt=f"tenant-{turn}")
        time.sleep(PAUSE_SECONDS)


def two_chats(send: Send) -> None:
    """Two conversations in turn, both of which only grow."""
    talks: list[list[Message]] = [[system(prose(4, 900))], [system(prose(5, 1050))]]
    for turn in range(REQUESTS):
        for at, talk in enumerate(talks):
            talk.append(user(prose(100 + 2 * turn + at, 90)))
            send(list(talk))
            talk.append({"role": "assistant", "content": prose(500 + 2 * turn + at, 30)})
        time.sleep(PAUSE_SECONDS)


def agents_in_any_turn(send: Send) -> None:
    """Five agents that only append, in any turn, and documents of any length between them; always the same."""
    dice, talks = random.Random(5), [[system(prose(40 + agent, 700))] for agent in range(5)]
    for turn in range(50):
        talk = talks[dice.randrange(5)]
        talk.append(user(prose(100 + turn, 90)))
        send(list(talk))
        talk.append({"role": "assistant", "content": prose(500 + turn, 30)})
        if dice.random() < 0.4:
            send([user(prose(3000 + turn, dice.randint(300, 1500)))])
        time.sleep(PAUSE_SECONDS / 4)
