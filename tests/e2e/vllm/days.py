"""Days on which two clients use one vLLM: what is the main cause, written down before the day is played.

Each is analysed with the bodies of the requests and without: with them the main cause has to stand first, without them
nothing else may be said with more than low confidence.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.client import Message, prose, system, tool, user
from e2e.vllm import models
from e2e.vllm.check import analyze, title
from e2e.vllm.scenario import Scenario
from e2e.vllm.traffic import Traffic, clock

TURNS, PAUSE_SECONDS = 22, 0.4
SOURCES: dict[str, tuple[str, ...]] = {
    "log, counters, usage, bodies": ("metrics", "responses", "requests"),
    "log, bodies": ("requests",),
    "log, counters, usage": ("metrics", "responses"),
    "log": (),
}
"""What is given to cachedoctor beside the log, by what is printed of it."""
DENSE = "tiny-dense"
ADAPTERS = tuple(f"style-{number}" for number in range(8))

Request = tuple[list[Message], dict[str, Any]]
"""Messages, and fields of the body beside them."""
Client = Iterator[Request]


@dataclass(frozen=True)
class Day(Scenario):
    """A server and two clients that alternate."""

    also: tuple[str, ...] = ()
    """Codes and names that would be true as well, or that say less and are true."""
    adapters: bool = False
    """The server has adapters, made up."""


def turns(a: Client, b: Client) -> Traffic:
    """Send a request of each client in turn, until both have none left."""
    pairs = [request for pair in itertools.zip_longest(a, b) for request in pair if request is not None]

    def play(send: Any) -> None:
        for messages, more in pairs:
            send(messages, **more)
            time.sleep(PAUSE_SECONDS)

    return play


def grows(seed: int, head: int = 900, **more: Any) -> Client:
    """A conversation to which only something is added."""
    talk: list[Message] = [system(prose(seed, head))]
    for turn in range(TURNS):
        talk.append(user(prose(1000 * seed + turn, 90)))
        yield list(talk), more
        talk.append({"role": "assistant", "content": prose(1000 * seed + 500 + turn, 30)})


def clock_in_head(seed: int) -> Client:
    """A conversation whose system prompt tells the time first."""
    for turn, (messages, more) in enumerate(grows(seed, 1100)):
        yield [system(clock(turn) + messages[0]["content"]), *messages[1:]], more


def salts(seed: int) -> Client:
    """A conversation each request of which has a salt of its own."""
    for turn, (messages, more) in enumerate(grows(seed, 1100)):
        yield messages, more | {"cache_salt": f"request-{turn}"}


def shuffled_tools(seed: int) -> Client:
    """A conversation with five tools, in another order each time."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"{name}_file",
                "description": prose(seed + number, 150),
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
            },
        }
        for number, name in enumerate(("read", "write", "find", "move", "drop"))
    ]
    orders = list(itertools.permutations(tools))
    for turn, (messages, more) in enumerate(grows(seed)):
        yield messages, more | {"tools": list(orders[17 * turn % len(orders)]), "tool_choice": "none"}


def truncated_results(seed: int) -> Client:
    """An agent that keeps the three newest results of its tools and cuts all older ones to a stub."""
    turns = [
        (user(prose(1000 * seed + turn, 40)), prose(1000 * seed + 300 + turn, 350), prose(1000 * seed + 600 + turn, 30))
        for turn in range(TURNS)
    ]
    for now in range(1, TURNS + 1):
        talk: list[Message] = [system(prose(seed, 500))]
        for turn, (asked, result, reply) in enumerate(turns[:now]):
            talk += [asked, tool(result if turn >= now - 3 else f"[result {turn} was removed]")]
            if turn < now - 1:
                talk.append({"role": "assistant", "content": reply})
        yield talk, {}


def rotated_documents(seed: int) -> Client:
    """Questions about the same five documents, which a search returns in another order each time; no history."""
    documents = [prose(seed + number, 300) for number in range(5)]
    orders = list(itertools.permutations(documents))
    for turn in range(TURNS):
        found = " ".join(orders[17 * turn % len(orders)])
        yield [system(prose(seed, 600)), user(f"{found} {prose(1000 * seed + turn, 60)}")], {}


def changing_adapters(seed: int) -> Client:
    """A conversation that asks for another of eight adapters with each request."""
    for turn, (messages, more) in enumerate(grows(seed, 1100)):
        yield messages, more | {"model": ADAPTERS[turn % len(ADAPTERS)]}


def oldest_dropped(seed: int) -> Client:
    """A conversation of which only the newest twelve messages are sent, behind the system prompt."""
    for messages, more in grows(seed, 300):
        yield [messages[0], *messages[1:][-11:]], more


def documents(seed: int, each: int = 3700) -> Client:
    """A batch job: a document with each request, none of them twice."""
    for turn in range(TURNS):
        yield [user(prose(1000 * seed + turn, each))], {}


def short(seed: int) -> Client:
    """Questions below one short instruction, together shorter than a block."""
    for turn in range(TURNS):
        yield [system(prose(seed, 30)), user(prose(1000 * seed + turn, 25))], {}


ALL = [
    Day("both-grow", None, DENSE, turns(grows(11), grows(12)), reuse=(0.8, 1.0)),
    Day(
        "clock-in-head", "CD102 volatile-prefix", DENSE, turns(grows(13), clock_in_head(14)), reuse=(0.3, 0.6),
        also=("CD510 prefix-not-shared",),
    ),
    Day(
        "salts", "CD112 cache-salt", DENSE, turns(grows(15), salts(16)), reuse=(0.3, 0.6),
        also=("CD510 prefix-not-shared",),
    ),
    Day(
        "tools-shuffled", "CD103 tools-changed", DENSE, turns(grows(17), shuffled_tools(18)), reuse=(0.3, 0.7),
        also=("CD510 prefix-not-shared",),
    ),
    Day(
        "results-truncated", "CD105 history-rewritten", DENSE, turns(grows(19), truncated_results(20)),
        reuse=(0.4, 0.85), also=("CD510 prefix-not-shared",),
    ),
    Day(
        # what is reused is the shared head; documents in another order are a new text, and no fault of the client
        "documents-rotated", None, DENSE, turns(grows(21), rotated_documents(22)), reuse=(0.4, 0.8),
    ),
    Day(
        "adapters-changed", "CD111 lora-changed", DENSE, turns(grows(23), changing_adapters(24)), reuse=(0.4, 0.85),
        options=("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "8", "--max-lora-rank", "8"), adapters=True,
        also=("CD510 prefix-not-shared",),
    ),
    Day(
        "oldest-dropped", "CD106 history-truncated", DENSE, turns(grows(25), oldest_dropped(26)), reuse=(0.4, 0.85),
        also=("CD510 prefix-not-shared",),
    ),
    Day(
        "few-kv-blocks", "CD504 kv-pressure", DENSE, turns(grows(27), documents(28)), reuse=(0.0, 0.3),
        options=("--num-gpu-blocks-override", "36", "--max-model-len", "4096"),
    ),
    Day(
        "below-a-block", "CD501 block-granularity", DENSE, turns(short(29), short(30)), reuse=(0.0, 0.0),
        severity="note",
    ),
    Day(
        "caching-off", "CD503 prefix-caching-off", DENSE, turns(grows(31), grows(32)), reuse=(0.0, 0.0),
        options=("--no-enable-prefix-caching",),
    ),
    Day(
        "two-priorities", None, DENSE, turns(grows(33, priority=0), grows(34, priority=5)), reuse=(0.8, 1.0),
        options=("--scheduling-policy", "priority"),
    ),
]  # fmt: skip


def reports(day: Day, folder: Path) -> dict[str, dict[str, Any]]:
    """What cachedoctor says of a recording, by what it is given."""
    return {said: analyze(folder, given) for said, given in SOURCES.items()}


def faults(day: Day, given: Sequence[str], report: dict[str, Any]) -> list[str]:
    """Say what is wrong in a report; none is right."""
    findings = report["findings"]
    if "requests" not in given:
        fine = {day.finding, *day.also}
        return [
            f"said with {f['confidence']} confidence: {title(f)} ({f['severity']}): {f['claim']}"
            for f in findings
            if title(f) not in fine and f["confidence"] != "low"
        ]
    first = findings[0] if findings else None
    wrong = [] if day.finding is None else _first(day, first)
    fine = {day.finding, *day.also} if day.finding is not None else set()
    return wrong + [
        f"beside it: {title(f)} ({f['severity']}): {f['claim']}"
        for f in findings
        if f["severity"] != "note" and title(f) not in fine
    ]


def _first(day: Day, first: dict[str, Any] | None) -> list[str]:
    if first is None or title(first) != day.finding:
        return [f"expected {day.finding} first, not {None if first is None else title(first)}"]
    if day.severity == "warning" and first["severity"] == "note":
        return [f"{day.finding} is only a note: {first['claim']}"]
    return []


def options(day: Day, folder: Path) -> tuple[str, ...]:
    """Options of a day's server that name files, which are written for it."""
    if not day.adapters:
        return ()
    for name in ADAPTERS:
        models.save_adapter(day.model, folder / name)
    return ("--lora-modules", *(f"{name}={folder / name}" for name in ADAPTERS))
