"""One conversation of one client, and how it grows."""

from __future__ import annotations

import random
from typing import Any

from e2e.client import Message, prose, system, tool, user
from e2e.days.recorder import Recorder


def tools(count: int, seed: int = 0) -> list[Message]:
    """Definitions of tools, each about 330 tokens, as agents send them with every request."""
    names = ("read_file", "write_file", "list_dir", "run_command", "search_text", "apply_patch", "open_url")
    return [
        {
            "type": "function",
            "function": {
                "name": names[i],
                "description": prose(900 + 10 * seed + i, 160),
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            },
        }
        for i in range(count)
    ]


class Talk:
    """A conversation: its name, its client, its system prompt and what was said so far."""

    def __init__(self, day: Recorder, name: str, head: str, client: str = "", **fields: Any) -> None:
        self.day, self.name, self.client = day, name, client or name
        self.head, self.fields = head, fields
        self.messages: list[Message] = []
        self.turn = 0
        self._seed = sum(map(ord, name)) * 1000

    def text(self, length: int) -> str:
        """Invented text that no other turn of a conversation of this name has."""
        self.turn += 1
        return f"{self.name} {self.turn}. {prose(self._seed + self.turn, length)}"

    def ask(self, length: int = 250, tokens: int = 6, **fields: Any) -> str:
        """Add a user message of ``length`` tokens, send all, add the reply."""
        self.messages.append(user(self.text(length)))
        return self.send(tokens, **fields)

    def send(self, tokens: int = 6, **fields: Any) -> str:
        """Send what there is and add the reply."""
        reply = self.day.chat(self.name, self.client, self.prompt(), tokens, **{**self.fields, **fields})
        self.messages.append({"role": "assistant", "content": reply})
        return reply

    def work(self, steps: int, length: int = 300) -> None:
        """Ask once, then do so many steps: the reply calls a tool, and its result of ``length`` tokens is sent back."""
        self.ask(150)
        for _ in range(steps):
            self.step(length)

    def step(self, length: int = 300) -> None:
        """Let the last reply call a tool, add the result, send."""
        self.turn += 1
        call = f"call{self.turn:05d}"
        function = {"name": "read_file", "arguments": f'{{"path": "src/part{self.turn}.py"}}'}
        self.messages[-1]["tool_calls"] = [{"id": call, "type": "function", "function": function}]
        self.messages.append({**tool(prose(self._seed + 500 + self.turn, length)), "tool_call_id": call})
        self.send()

    def prompt(self) -> list[Message]:
        """Messages as they are sent: the system prompt, then what was said."""
        return [system(self.head), *self.messages] if self.head else list(self.messages)


def in_turn(talks: list[Talk], rounds: int, length: int = 250) -> None:
    """Ask once in each conversation, again and again, always in the same order."""
    for _ in range(rounds):
        for talk in talks:
            talk.ask(length)


def at_random(talks: list[Talk], count: int, seed: int, length: int = 250) -> None:
    """Ask ``count`` times in conversations drawn by chance; each is asked once at first."""
    chance = random.Random(seed)
    for talk in talks:
        talk.ask(length)
    for _ in range(count):
        chance.choice(talks).ask(length)
