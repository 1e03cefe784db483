"""The beginning that sessions share, warmed on a real server: cost and saving as told, and as measured."""

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
    def is_close(self) -> bool:
        """Whether seconds and tokens are as told."""
        return all(
            abs(told - real) <= WITHIN * real
            for told, real in (
                (self.told["cost_ms"], self.cost_ms),
                (self.told["saved_ms"], self.saved_ms),
                (self.told["saved_tokens"], self.saved_tokens),
            )
        )


def measured(trial: Warm, folder: Path) -> Measured:
    """Record the sessions, ask, warm a new server as told, and send the sessions again."""
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
    cold = _run(trial, model, options, folder / "cold.log", bodies)
    lines = [json.dumps({"endpoint": CHAT, "body": body}) for body in bodies]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "cachedoctor", "tune", str(folder / "cold.log"), "-q", "-f", "json"]
    command += ["--requests", str(folder / "requests.jsonl"), "--tokenizer", str(model), "--build", str(trial.build)]
    command += ["--cmdline", " ".join(("llama-server", *options))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NotTriedError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    told = json.loads(done.stdout)["first_turn"]
    if told is None:
        raise NotTriedError("no beginning is named")
    messages = [*bodies[0]["messages"][: told["messages"]], {"role": "user", "content": "ok"}]
    warming = [{"messages": messages, "max_tokens": 1, "temperature": 0} for _ in range(told["slots"])]
    if told["slots"] > 1:
        warming = [{**body, "id_slot": slot} for slot, body in enumerate(warming)]
    warm = _run(trial, model, options, folder / "warm.log", [*warming, *bodies])
    cost, again = warm[: len(warming)], warm[len(warming) :]
    return Measured(
        told,
        sum(ms for ms, _ in cost),
        sum(ms for ms, _ in cold) - sum(ms for ms, _ in again),
        sum(tokens for _, tokens in cold) - sum(tokens for _, tokens in again),
    )


def _run(
    trial: Warm, model: Path, options: list[str], log: Path, bodies: list[dict[str, Any]]
) -> list[tuple[float, int]]:
    """Milliseconds and tokens of every prompt that was computed."""
    found = []
    with Server(trial.build, model, options, {}, log) as server:
        for body in bodies:
            status, answer = server.post(CHAT, body)
            if status != 200:
                raise NotTriedError(f"refused: {answer}")
            found.append((float(answer["timings"]["prompt_ms"]), int(answer["timings"]["prompt_n"])))
    return found
