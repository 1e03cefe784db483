"""One scenario: what is started and sent, what is kept of it, and what the server itself said of its reuse."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.client import Message
from e2e.vllm.server import Vllm
from e2e.vllm.traffic import Traffic

LOG, BEFORE, AFTER, RESPONSES, BODIES = "server.log", "before.txt", "after.txt", "usage.json", "requests.jsonl"
REPLY_TOKENS = 4
LAST_LINE_SECONDS = 11
"""vLLM tells its statistics every 10 s: the line of the last requests is waited for."""


class FaultNotMadeError(Exception):
    """The server did not do what the scenario is about; the message says what it did instead."""


@dataclass(frozen=True)
class Scenario:
    """A server and a client, and what cachedoctor must say of them."""

    name: str
    finding: str | None
    """Code and name of what must stand first in the report; None for a server that does well."""
    model: str
    traffic: Traffic
    reuse: tuple[float, float]
    """Least and greatest share of the prompt tokens that the server may say it reused, or the fault was not made."""
    options: tuple[str, ...] = ()
    severity: str = "warning"
    """The finding is at least this severe."""
    told: bool = True
    """The bodies of the requests are given beside the log."""


@dataclass(frozen=True)
class Told:
    """What the server said of one request, in tokens; None for what it did not say."""

    id: str
    prompt: int | None
    cached: int | None


def record(scenario: Scenario, folder: Path, more_options: Sequence[str] = ()) -> None:
    """Start the scenario's server, send its traffic, and leave log, metrics and responses in ``folder``, a new one."""
    folder.mkdir(parents=True, exist_ok=bool(more_options))
    responses: list[dict[str, Any]] = []
    options = ("--enable-prompt-tokens-details", *scenario.options, *more_options)
    with Vllm(scenario.model, options, folder / LOG) as server:

        def send(messages: list[Message], **more: Any) -> None:
            body = {"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0, **more}
            status, answer = server.post("/v1/chat/completions", body)
            if status != 200:
                raise FaultNotMadeError(f"a request was refused ({status}): {answer}")
            responses.append(answer)
            with (folder / BODIES).open("a", encoding="utf-8") as file:
                file.write(json.dumps(body) + "\n")

        (folder / BEFORE).write_text(server.metrics(), "utf-8")
        scenario.traffic(send)
        time.sleep(LAST_LINE_SECONDS)
        (folder / AFTER).write_text(server.metrics(), "utf-8")
    (folder / RESPONSES).write_text(json.dumps(responses, indent=1) + "\n", "utf-8")


def truth(responses: Sequence[dict[str, Any]]) -> list[Told]:
    """Read what the server said of each request out of the bodies of its responses."""
    told = []
    for answer in responses:
        usage = answer.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        told.append(Told(str(answer.get("id")), usage.get("prompt_tokens"), details.get("cached_tokens")))
    return told


def shares(told: Sequence[Told]) -> tuple[int, int]:
    """Return cached and all prompt tokens of these requests; what was not said counts nothing."""
    return sum(one.cached or 0 for one in told), sum(one.prompt or 0 for one in told)


def made(scenario: Scenario, folder: Path) -> list[Told]:
    """Return the truth of a recording.

    Raises:
        FaultNotMadeError: it is not what the scenario is about.
        OSError: the recording is incomplete.
    """
    told = truth(json.loads((folder / RESPONSES).read_text("utf-8")))
    cached, prompt = shares(told)
    if not prompt:
        raise FaultNotMadeError("the responses say nothing of prompt tokens")
    least, most = scenario.reuse
    if not least <= cached / prompt <= most:
        raise FaultNotMadeError(f"{cached} of {prompt} prompt tokens were cached, not {least:.0%} to {most:.0%}")
    return told
