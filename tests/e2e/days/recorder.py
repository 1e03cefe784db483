"""Sends the requests of a day to llama-server and keeps what was sent, when, and what came back."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.client import Message
from e2e.server import Server

CHAT, INFILL, EMBEDDINGS = "/v1/chat/completions", "/infill", "/v1/embeddings"
MESSAGES, COMPLETIONS = "/v1/messages", "/v1/completions"


@dataclass
class Sent:
    """One request of a day."""

    number: int
    path: str
    conversation: str
    client: str
    body: Message
    started: float
    """Seconds since the day began; so is ``ended``."""
    ended: float = 0.0
    status: int | None = None
    """None where the client hung up before an answer."""
    cut: bool = False
    """Whether the client hung up."""
    answer: Message = field(default_factory=dict)
    life: int = 0
    """How often the server had been restarted before."""


class Recorder:
    """A server that can be restarted, and all requests that were sent to it."""

    def __init__(self, start: Callable[[Path, str], Server], folder: Path) -> None:
        self.start, self.folder = start, folder
        self.sent: list[Sent] = []
        self.logs: list[Path] = []
        self._lock, self._began = threading.Lock(), time.monotonic()
        self._running = contextlib.ExitStack()

    def open(self, kind: str = "") -> None:
        """Start the server, with a model of that kind if it is not the day's; its log is a file of its own."""
        self.logs.append(self.folder / f"server.{len(self.logs)}.log")
        self.server = self._running.enter_context(self.start(self.logs[-1], kind))

    def close(self) -> None:
        """Stop the server."""
        self._running.close()

    def restart(self, kind: str = "") -> None:
        """Stop the server and start it again, with the same options."""
        self.close()
        self.open(kind)

    def chat(self, conversation: str, client: str, messages: list[Message], tokens: int = 6, **fields: Any) -> str:
        """Send a conversation, return the reply; empty where the server refused."""
        body = {"messages": messages, "max_tokens": tokens, "temperature": 0, **fields}
        answer = self.post(CHAT, conversation, client, body).answer
        return str(answer["choices"][0]["message"].get("content") or "") if "choices" in answer else ""

    def complete(self, conversation: str, client: str, prompt: str, tokens: int = 6) -> str:
        """Send a bare text without a template, return what follows."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        answer = self.post(COMPLETIONS, conversation, client, body).answer
        return str(answer["choices"][0]["text"]) if "choices" in answer else ""

    def message(self, conversation: str, client: str, head: str, messages: list[Message], tokens: int = 6) -> str:
        """Send a conversation as Claude Code does, return the reply."""
        body = {"model": "any", "max_tokens": tokens, "temperature": 0, "system": head, "messages": messages}
        answer = self.post(MESSAGES, conversation, client, body).answer
        return "".join(block.get("text", "") for block in answer.get("content", []))

    def slot(self, action: str, slot: int = 0, file: str = "slot.bin") -> None:
        """Save, restore or erase a slot, which is not a request for a prompt."""
        status, answer = self.server.post(f"/slots/{slot}?action={action}", {"filename": file})
        assert status == 200, answer

    def post(self, path: str, conversation: str, client: str, body: Message) -> Sent:
        """Send one request and wait for its answer."""
        sent = self._begin(path, conversation, client, body)
        sent.status, sent.answer = self.server.post(path, body)
        sent.ended = self._now()
        return sent

    def cut(self, conversation: str, client: str, messages: list[Message], after: int, **fields: Any) -> str:
        """Ask for a stream and hang up after so many pieces of the reply; 0: while the prompt is processed."""
        body = {"messages": messages, "temperature": 0, "stream": True, **fields}
        sent = self._begin(CHAT, conversation, client, body)
        sent.cut = True
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
        reply = ""
        if after:
            reply = _pieces(connection.getresponse(), after)
        else:
            time.sleep(0.05)
        connection.close()
        sent.ended = self._now()
        sent.answer = {"heard": reply}
        return reply

    def together(self, *works: Callable[[], object]) -> None:
        """Let several clients work at the same time; an error of one is raised when all have ended."""
        errors: list[BaseException] = []

        def guarded(work: Callable[[], object]) -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _begin(self, path: str, conversation: str, client: str, body: Message) -> Sent:
        kept = json.loads(json.dumps(body))  # the caller continues appending to its messages
        with self._lock:
            number = len(self.sent)
            self.sent.append(Sent(number, path, conversation, client, kept, self._now(), life=len(self.logs) - 1))
            return self.sent[-1]


def _pieces(response: http.client.HTTPResponse, count: int) -> str:
    """Read so many pieces of a streamed reply."""
    reply = ""
    while count > 0:
        line = response.readline()
        if not line:
            break
        if line.startswith(b"data: {"):
            delta = json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            reply, count = reply + delta, count - bool(delta)
    return reply
