"""A stand-in for the programs that talk to llama-server: sends conversations, keeps what the server logs it reused."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from e2e.server import Server

WORDS = "otter lantern bridge harbour window kettle copper river paper boat winter market map clock rain parser queue"
SLACK = 80
"""Tokens: what may be recomputed of a prefix that is reused. A reply of a few tokens, the frame of a message, and the
tokens after the last checkpoint, which llama.cpp saves up to 64 tokens before the end of a prompt."""

Message = dict[str, Any]


def prose(seed: int, characters: int) -> str:
    """Invented text of exactly so many characters: as many tokens of the test's models."""
    pick, text = random.Random(seed), ""
    while len(text) < characters:
        text += pick.choice(WORDS.split()) + " "
    return text[: characters - 1] + "."


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def tool(text: str) -> Message:
    return {"role": "tool", "content": text, "tool_call_id": "call"}


@dataclass
class Probe:
    """A request that should reuse its beginning: what the server logs, and what was there to be reused."""

    label: str
    status: int
    cached: int | None
    reusable: int
    """Tokens at the beginning that an earlier request of this conversation had too, counted by construction."""

    @property
    def cured(self) -> bool:
        return self.status == 200 and self.cached is not None and self.cached >= self.reusable - SLACK

    def __str__(self) -> str:
        said = f"{self.cached} cached" if self.status == 200 else f"refused ({self.status})"
        return f"{self.label}: {said} of {self.reusable}"


@dataclass
class Client:
    """Sends to one server; ``env`` and ``habits`` are the settings that a remedy may change."""

    server: Server
    env: dict[str, str] = field(default_factory=dict)
    habits: dict[str, Any] = field(default_factory=dict)
    """Fields and behaviour named by the case, such as ``cache_prompt``."""
    probes: list[Probe] = field(default_factory=list)

    def chat(
        self, messages: list[Message], expect: int | None = None, label: str = "", tokens: int = 6, **fields: Any
    ) -> str:
        """Send a conversation and return the reply; with ``expect`` tokens of it to be reused, it is a probe."""
        body = {"messages": messages, **fields}
        answer = self._send("/v1/chat/completions", body, expect, label, tokens)
        return str(answer["choices"][0]["message"].get("content") or "") if "choices" in answer else ""

    def complete(self, prompt: str, expect: int | None = None, label: str = "") -> None:
        """Send a bare text without any template: so a test chooses the very token at which two prompts diverge."""
        self._send("/v1/completions", {"prompt": prompt}, expect, label, 6)

    def slot_file(self, action: str) -> None:
        """Save slot 0 to a file, or restore it from there; the server was started with --slot-save-path."""
        status, answer = self.server.post(f"/slots/0?action={action}", {"filename": "slot.bin"})
        assert status == 200, answer

    def _send(self, path: str, body: Message, expect: int | None, label: str, tokens: int) -> Message:
        status, answer = self.server.post(path, {"max_tokens": tokens, "temperature": 0, **body})
        if expect is not None:
            self.probes.append(Probe(label or f"request {len(self.probes) + 1}", status, cached(answer), expect))
        elif status != 200:
            raise AssertionError(f"a request that is no probe was refused: {answer}")
        return answer


def cached(answer: dict[str, Any]) -> int | None:
    """Return the server's own count of reused tokens; older builds tell only how many they processed."""
    usage, timings = answer.get("usage") or {}, answer.get("timings") or {}
    told = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", timings.get("cache_n"))
    if told is None and "prompt_tokens" in usage and "prompt_n" in timings:
        told = usage["prompt_tokens"] - timings["prompt_n"]
    return told


def size(messages: list[Message]) -> int:
    """Tokens that these messages have at least in a prompt: one for each character of their text."""
    return sum(len(m["content"]) + len(m.get("reasoning_content", "")) for m in messages)
