"""One question: a day is recorded, each setting is replayed, and then a real server gets the same bodies under it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import models
from e2e.days.recorder import Recorder, Sent
from e2e.days.truth import counts
from e2e.server import Server
from e2e.whatif.questions import Question

CLOSE = 0.02
"""Share of the reused tokens by which a replay may be off."""
FEW = 64
"""Tokens that count as none: the frame of a prompt, a reply."""
RECORDED = "as recorded"


class NotAnsweredError(Exception):
    """cachedoctor refused, or the server did not say what it reused."""


@dataclass(frozen=True)
class Answer:
    """Reused tokens under one setting."""

    setting: str
    real: int
    """As the server of that setting says."""
    replayed: int
    """As ``cachedoctor tune --set`` said before."""

    @property
    def within(self) -> bool:
        return abs(self.real - self.replayed) <= max(FEW, CLOSE * self.real)


def ask(question: Question, folder: Path) -> list[Answer]:
    """Record the day, replay it under every setting, and only then run each; the first answer is the day itself.

    Raises:
        NotAnsweredError: cachedoctor refused, or the server did not say what it reused.
        ServerDiedError: a server ended by itself.
    """
    folder.mkdir(parents=True)
    model = folder.parent / f"{question.kind}.gguf"
    if not model.exists():
        models.KINDS[question.kind]().save(model)
    recorded = _recorded(question, model, folder)
    bodies = [(sent.path, sent.body) for sent in sorted(recorded, key=lambda one: one.started)]
    lines = [json.dumps({"endpoint": path, "body": body}, ensure_ascii=False) for path, body in bodies]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = {setting: _simulated(question, setting, folder, model) for setting in question.settings}
    answers = [Answer(RECORDED, _reused(recorded), next(iter(said.values()))["replay"]["reused_tokens"])]
    for setting, told in said.items():
        real = _reused(_sent_again(question, setting, model, folder, bodies))
        answers.append(Answer(setting, real, told["changed"]["reused_tokens"]))
    return answers


def _recorded(question: Question, model: Path, folder: Path) -> list[Sent]:
    day = Recorder(lambda log, _: Server(question.build, model, list(question.options), {}, log), folder)
    day.open()
    try:
        question.day.traffic(day, question.day.is_faulty)
    finally:
        day.close()
    return day.sent


def _simulated(question: Question, setting: str, folder: Path, model: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "cachedoctor", "tune", str(folder / "server.0.log"), "-q", "-f", "json"]
    command += ["--requests", str(folder / "requests.jsonl"), "--tokenizer", str(model)]
    command += ["--build", str(question.build), "--cmdline", " ".join(("llama-server", *question.options))]
    for word in setting.split():
        command += ["--set", word]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NotAnsweredError(f"{setting}: cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _sent_again(
    question: Question, setting: str, model: Path, folder: Path, bodies: Sequence[tuple[str, dict[str, Any]]]
) -> list[Sent]:
    """Send the bodies one after the other to a server with the setting."""
    build, options = question.under(setting)
    below = folder / setting.replace(" ", ",")
    below.mkdir()
    day = Recorder(lambda log, _: Server(build, model, list(options), {}, log), below)
    day.open()
    try:
        for path, body in bodies:
            day.post(path, "", "", body)
    finally:
        day.close()
    return day.sent


def _reused(sent: Sequence[Sent]) -> int:
    """Tokens that the server says it reused; a request that it refused has none."""
    found = 0
    for one in sent:
        _, cached = counts(one.answer)
        if cached is None and one.status == 200:
            raise NotAnsweredError(f"request {one.number}: the server does not say what it reused")
        found += cached or 0
    return found


def misplaced(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """Name the pairs of settings that the replay ranks wrongly, of those that really differ by more than ``CLOSE``."""
    found = []
    for at, one in enumerate(answers):
        for other in answers[at + 1 :]:
            low, high = sorted((one, other), key=lambda answer: answer.real)
            if high.real - low.real > max(FEW, CLOSE * high.real) and low.replayed >= high.replayed:
                found.append((low.setting, high.setting))
    return found
