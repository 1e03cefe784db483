"""Records a trial on a real server, asks ``cachedoctor tune``, and runs the same requests under what it names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e import models
from e2e.client import prose, system, user
from e2e.days.truth import counts
from e2e.server import Server
from e2e.worth.trials import Trial

WITHIN = 0.01
"""Share of the reuse that the setting that is named has to keep, and that the next smaller one has to lose."""
_FINE = 16
"""As cachedoctor tries limits: whole MiB up to here, then steps of a sixteenth of the power of two below."""
CHAT = "/v1/chat/completions"


class NotTriedError(Exception):
    """cachedoctor refused, or named no setting."""


@dataclass
class Outcome:
    """What was named, and what the real servers reused."""

    trial: Trial
    named: str
    best: int
    """Tokens that can be reused: of the day with room for everything."""
    with_named: int
    with_smaller: int
    smaller: str
    peak: tuple[float, float] | None = None
    """MiB: lower bound of the peak as told, and by how much the process really grew."""
    notes: list[str] = field(default_factory=list)

    @property
    def keeps(self) -> bool:
        return self.with_named >= (1 - WITHIN) * self.best

    @property
    def loses(self) -> bool:
        return self.with_smaller < (1 - WITHIN) * self.best

    @property
    def is_bound(self) -> bool:
        return self.peak is None or self.peak[0] <= self.peak[1]


@dataclass
class Day:
    """One day on one server."""

    reused: int
    bodies: list[dict[str, Any]]
    grown_mib: float
    """Largest resident memory of the process less that before the first request."""


def tried(trial: Trial, folder: Path) -> Outcome:
    """Record, ask, and run the setting that is named and the next smaller one.

    Raises:
        NotTriedError: cachedoctor refused, or named no setting.
        ServerDiedError: a server ended by itself.
    """
    folder.mkdir(parents=True)
    model = folder.parent / f"{trial.kind}.gguf"
    if not model.exists():
        models.KINDS[trial.kind]().save(model)
    log = folder / "recorded.log"
    recorded = _day(trial, model, trial.options(), log)
    lines = [json.dumps({"endpoint": CHAT, "body": body}) for body in recorded.bodies]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = _tune(trial, folder, model, log)
    if trial.asks == "memory":
        return _memory(trial, folder, model, recorded, told)
    return _agents(trial, folder, model, recorded, told)


def _memory(trial: Trial, folder: Path, model: Path, recorded: Day, told: dict[str, Any]) -> Outcome:
    row = next(one for one in told["memory"]["held"] if one["what"] == "ram")
    if row["options"] is None:
        raise NotTriedError("no smaller limit is named")
    limit = int(re.fullmatch(r"--cache-ram (\d+)", row["options"])[1])  # type: ignore[index]
    below = _below(limit)
    named = _day(trial, model, trial.options(ram=limit), folder / "named.log", recorded.bodies)
    smaller = _day(trial, model, trial.options(ram=below), folder / "smaller.log", recorded.bodies)
    peak = (told["memory"]["saving_mib"], recorded.grown_mib)
    return Outcome(trial, row["options"], recorded.reused, named.reused, smaller.reused, f"--cache-ram {below}", peak)


def _agents(trial: Trial, folder: Path, model: Path, recorded: Day, told: dict[str, Any]) -> Outcome:
    ways = (told["agents"] or {}).get("keep_all") or []
    if not ways:
        raise NotTriedError(f"nothing is named: {told['agents']}")
    options = ways[0]["options"]
    ram = re.search(r"--cache-ram (\d+)", options)
    slots = re.search(r"--parallel (\d+)", options)
    number = int(slots[1]) if slots else trial.slots
    limit = int(ram[1]) if ram else trial.ram
    named = _day(trial, model, trial.options(number, limit), folder / "named.log", recorded.bodies)
    fewer, below = (number - 1, limit) if slots else (number, _below(limit))
    smaller = _day(trial, model, trial.options(fewer, below), folder / "smaller.log", recorded.bodies)
    best = _day(trial, model, trial.options(len(trial.lengths), 8192), folder / "best.log", recorded.bodies)
    return Outcome(trial, options, best.reused, named.reused, smaller.reused, f"-np {fewer} --cache-ram {below}")


def _below(limit: int) -> int:
    """The next smaller limit that cachedoctor tries."""
    value, step, before = 1, 1, 0
    while value < limit:
        before = value
        if value >= 2 * _FINE * step:
            step *= 2
        value += step
    return before


def _tune(trial: Trial, folder: Path, model: Path, log: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "cachedoctor", "tune", str(log), "-q", "-f", "json"]
    command += ["--requests", str(folder / "requests.jsonl"), "--tokenizer", str(model), "--build", str(trial.build)]
    command += ["--cmdline", " ".join(("llama-server", *trial.options()))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NotTriedError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    (folder / "tune.json").write_bytes(done.stdout)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _day(trial: Trial, model: Path, options: list[str], log: Path, bodies: list[dict[str, Any]] | None = None) -> Day:
    """Send the turns of the trial, or bodies that were recorded, to a new server."""
    with Server(trial.build, model, options, {}, log) as server:
        before = _resident(server.process.pid, "VmRSS")
        sent, reused = list[dict[str, Any]](), 0
        for body in bodies if bodies is not None else _Talk(trial, server, sent):
            status, answer = server.post(CHAT, body)
            if status != 200:
                raise NotTriedError(f"a request was refused: {answer}")
            reused += counts(answer)[1] or 0
            if bodies is None:
                sent[-1]["answer"] = str(answer["choices"][0]["message"].get("content") or "")
        grown = _resident(server.process.pid, "VmHWM") - before
    found = bodies if bodies is not None else [one["body"] for one in sent]
    return Day(reused, found, grown)


class _Talk:
    """The turns of a trial: each conversation in turn continues after the answer."""

    def __init__(self, trial: Trial, server: Server, sent: list[dict[str, Any]]) -> None:
        self.trial, self.server, self.sent = trial, server, sent

    def __iter__(self) -> Any:
        talks = [[system(prose(number, length))] for number, length in enumerate(self.trial.lengths)]
        for turn in range(self.trial.turns):
            for number, messages in enumerate(talks):
                messages.append(user(prose(1000 + 10 * turn + number, 200 + 10 * number)))
                body = {"messages": [*messages], "max_tokens": 6, "temperature": 0}
                self.sent.append({"body": body})
                yield body
                messages.append({"role": "assistant", "content": self.sent[-1]["answer"]})


def _resident(pid: int, name: str) -> float:
    """MiB of a process: VmRSS now, VmHWM at most."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 0.0 if found is None else int(found[1]) / 1024
