"""The beginning that sessions share, warmed on a real server: cost and saving as told, and as measured.

What is told are seconds at the speed of the log. Other work on the machine changes the speed of a server by more than
the trial allows (one prompt took 2.0 to 5.5 s), so that it is made several times, each time with a log of its own, and
the one whose worst number is in the middle counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import models, wheels
from e2e.client import prose, system, user
from e2e.server import Server
from e2e.worth.tried import CHAT, NotTriedError

WITHIN = 0.2
"""Share by which the seconds may be off."""
RUNS = 5
"""How often the trial is made."""

Prompts = list[tuple[float, int]]
"""Milliseconds and tokens of every prompt that was computed."""


@dataclass(frozen=True)
class Warm:
    """Sessions with one head, one after the other, between restarts of the server."""

    kind: str
    head: int
    """Tokens of the common system prompt."""
    sessions: int = 4
    slots: int = 1
    build: int = wheels.NEWEST

    @property
    def name(self) -> str:
        return f"warming-{self.kind}-{self.sessions}x{self.head}-np{self.slots}-b{self.build}"


ALL = (Warm("dense", 12_000), Warm("hybrid", 12_000), Warm("dense", 8_000, slots=2, build=8672), Warm("swa", 9_000))


@dataclass
class Measured:
    """Milliseconds and tokens, told and measured."""

    told: dict[str, Any]
    cost_ms: float
    saved_ms: float
    saved_tokens: int

    @property
    def off(self) -> float:
        """Share by which the worst number is off."""
        numbers = (
            (self.told["cost_ms"], self.cost_ms),
            (self.told["saved_ms"], self.saved_ms),
            (self.told["saved_tokens"], self.saved_tokens),
        )
        return max(abs(told - real) / max(real, 1.0) for told, real in numbers)

    @property
    def is_close(self) -> bool:
        """Whether seconds and tokens are as told."""
        return self.off <= WITHIN


def measured(trial: Warm, folder: Path) -> Measured:
    """Several times record the sessions, ask, warm a new server as told, and send the sessions again."""
    folder.mkdir(parents=True)
    model = folder.parent / f"{trial.kind}.gguf"
    if not model.exists():
        models.KINDS[trial.kind]().save(model)
    context = str((trial.head + 2048) * trial.slots)
    options = ["-np", str(trial.slots), "-c", context, "--no-kv-unified", "-lv", "4"]
    bodies = [
        {"messages": [system(prose(1, trial.head)), user(prose(100 + number, 600))], "max_tokens": 6, "temperature": 0}
        for number in range(trial.sessions)
    ]
    lines = [json.dumps({"endpoint": CHAT, "body": body}) for body in bodies]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    each = [_once(trial, model, options, folder, bodies, number) for number in range(RUNS)]
    return sorted(each, key=lambda one: one.off)[RUNS // 2]


def _once(
    trial: Warm, model: Path, options: list[str], folder: Path, bodies: list[dict[str, Any]], number: int
) -> Measured:
    cold = _run(trial, model, options, folder / f"cold-{number}.log", bodies)
    told = _told(trial, model, options, folder, number)
    warming = _warming(told, bodies)
    warm = _run(trial, model, options, folder / f"warm-{number}.log", [*warming, *bodies])
    cost, again = warm[: len(warming)], warm[len(warming) :]
    return Measured(
        told,
        sum(ms for ms, _ in cost),
        sum(ms for ms, _ in cold) - sum(ms for ms, _ in again),
        sum(tokens for _, tokens in cold) - sum(tokens for _, tokens in again),
    )


def _told(trial: Warm, model: Path, options: list[str], folder: Path, number: int) -> dict[str, Any]:
    """What ``tune`` says of a run."""
    command = [sys.executable, "-m", "cachedoctor", "tune", str(folder / f"cold-{number}.log"), "-q", "-f", "json"]
    command += ["--requests", str(folder / "requests.jsonl"), "--tokenizer", str(model), "--build", str(trial.build)]
    command += ["--cmdline", " ".join(("llama-server", *options))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NotTriedError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    told: dict[str, Any] | None = json.loads(done.stdout)["first_turn"]
    if told is None:
        raise NotTriedError("no beginning is named")
    return told


def _warming(told: dict[str, Any], bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bodies that warm as it was told: one, or one for each slot."""
    messages = [*bodies[0]["messages"][: told["messages"]], {"role": "user", "content": "ok"}]
    warming = {"messages": messages, "max_tokens": 1, "temperature": 0}
    if told["slots"] == 1:
        return [warming]
    return [{**warming, "id_slot": slot} for slot in range(told["slots"])]


def _run(trial: Warm, model: Path, options: list[str], log: Path, bodies: list[dict[str, Any]]) -> Prompts:
    """Milliseconds and tokens of every prompt that was computed."""
    found = []
    with Server(trial.build, model, options, {}, log) as server:
        for body in bodies:
            status, answer = server.post(CHAT, body)
            if status != 200:
                raise NotTriedError(f"refused: {answer}")
            found.append((float(answer["timings"]["prompt_ms"]), int(answer["timings"]["prompt_n"])))
    return found
