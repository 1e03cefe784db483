"""Slot files on real servers: restores that the next request uses, and restores that it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import models, wheels
from e2e.client import Message, prose, system, user
from e2e.days.truth import counts
from e2e.server import Server
from e2e.worth.tried import CHAT, NotTriedError

OLD = 8672
_LONG = 3000
"""Tokens of a system prompt."""


@dataclass(frozen=True)
class Restore:
    """A conversation is saved to a file, the server restarts, the file is restored, and one more request comes."""

    name: str
    kind: str
    works: bool
    """Whether that request is meant to reuse at least half of what was restored."""
    follow: Callable[[list[Message]], dict[str, Any]]
    """The request after the restore, by what the conversation had."""
    build: int = wheels.NEWEST


def _goes_on(said: list[Message]) -> dict[str, Any]:
    return {"messages": [*said, user("And now the next question of the same conversation.")]}


def _edits(said: list[Message]) -> dict[str, Any]:
    return {"messages": [*said[:-2], user("Another question in the place of the last one.")]}


def _unrelated(_: list[Message]) -> dict[str, Any]:
    return {"messages": [system(prose(77, _LONG)), user("hello")]}


def _uncached(said: list[Message]) -> dict[str, Any]:
    return {**_goes_on(said), "cache_prompt": False}


ALL = (
    Restore("goes-on", "dense", True, _goes_on),
    Restore("goes-on", "dense", True, _goes_on, OLD),
    Restore("goes-on", "hybrid", True, _goes_on),
    Restore("goes-on", "hybrid", True, _goes_on, OLD),
    Restore("edits", "dense", True, _edits),
    Restore("edits", "hybrid", True, _edits),
    Restore("unrelated", "dense", False, _unrelated),
    Restore("unrelated", "dense", False, _unrelated, OLD),
    Restore("uncached", "dense", False, _uncached),
    Restore("edits", "hybrid", False, _edits, OLD),
    Restore("edits", "recurrent", False, _edits, OLD),
    Restore("unrelated", "hybrid", False, _unrelated),
)


def told_apart(trial: Restore, folder: Path) -> tuple[bool, str]:
    """Run it; whether ``cachedoctor tune`` says of the restore what the server's own counts say, and a row."""
    folder.mkdir(parents=True)
    model = folder.parent / f"{trial.kind}.gguf"
    if not model.exists():
        models.KINDS[trial.kind]().save(model)
    options = ["-np", "1", "-c", "8192", "-lv", "4", "--slot-save-path", str(folder)]
    said: list[Message] = [system(prose(1, _LONG))]
    logs = [folder / "one.log", folder / "two.log"]
    with Server(trial.build, model, options, {}, logs[0]) as server:
        for turn in range(2):
            said.append(user(prose(10 + turn, 300)))
            answer = _asked(server, {"messages": said})
            said.append({"role": "assistant", "content": str(answer["choices"][0]["message"].get("content") or "")})
        _ok(server.post("/slots/0?action=save", {"filename": "slot.bin"}))
    with Server(trial.build, model, options, {}, logs[1]) as server:
        restored = int(_ok(server.post("/slots/0?action=restore", {"filename": "slot.bin"}))["n_restored"])
        answer = _asked(server, trial.follow(said))
    prompt, cached = counts(answer)
    really = (cached or 0) >= min(restored, prompt or restored) / 2
    if really != trial.works:
        return False, f"the server did otherwise: {cached} of {restored} restored tokens reused"
    both = folder / "server.log"
    both.write_bytes(b"".join(log.read_bytes() for log in logs))
    command = [sys.executable, "-m", "cachedoctor", "tune", str(both), "-q", "-f", "json", "--build", str(trial.build)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        return False, f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-300:]}"
    found = [one for one in json.loads(done.stdout)["restores"] if one["source"] == "slot file"]
    if len(found) != 1:
        return False, f"{len(found)} restores are told"
    one = found[0]
    words = f"told: {one['restored_tokens']} put back, {one['reused_tokens']} reused, {one['why'] or 'worked'}"
    return one["worked"] == really, f"{restored} restored, {cached} reused; {words}"


def _asked(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    return _ok(server.post(CHAT, {"max_tokens": 6, "temperature": 0, **body}))


def _ok(answer: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    if answer[0] != 200:
        raise NotTriedError(f"refused: {answer[1]}")
    return answer[1]
