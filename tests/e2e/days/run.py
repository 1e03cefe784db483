"""Plays one day on a real server and writes what it left: log, bodies, responses, truth."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import models, wheels
from e2e.days import truth
from e2e.days.recorder import Recorder, Sent
from e2e.days.situations import Situation
from e2e.server import Server

LEVELS = {"default": (), "lv4": ("-lv", "4")}
FILES = {**{f"{kind}.gguf": make for kind, make in models.KINDS.items()}}
FILES |= {"mmproj.gguf": models.projector, "adapter.gguf": models.adapter}
"""Files that a command line may name, and what makes them."""


@dataclass(frozen=True)
class Plan:
    """One run: a situation on a build, at a level, with its fault or without."""

    situation: Situation
    kind: str
    build: int
    level: str
    mended: bool = False

    @property
    def name(self) -> str:
        """Name of the folder: memory, situation, build, level."""
        return f"{self.kind}-{self.situation.name}{'_mended' * self.mended}-b{self.build}-{self.level}"

    @property
    def options(self) -> tuple[str, ...]:
        """What comes after ``llama-server -m MODEL``."""
        mended = self.situation.mended if self.mended else None
        return (self.situation.options if mended is None else mended) + LEVELS[self.level]


def play(plan: Plan, out: Path) -> dict[str, Any]:
    """Run a day and write its folder below ``out``; returns what went into truth.json."""
    kept = out / "models"
    with tempfile.TemporaryDirectory(prefix="cachedoctor-day-") as folder:
        day = Recorder(starter(plan.build, plan.kind, plan.options, kept), Path(folder))
        day.open()
        try:
            plan.situation.traffic(day, plan.situation.is_faulty and not plan.mended)
        finally:
            day.close()
        log = b"".join(path.read_bytes() for path in day.logs)
    told = _truth(plan, day.sent)
    run = out / plan.name
    run.mkdir(exist_ok=True)
    # A path of this machine says nothing of a server.
    (run / "server.log").write_bytes(log.replace(str(kept).encode(), b"/models"))
    _lines(run / "requests.jsonl", [_request(sent) for sent in day.sent])
    _lines(run / "responses.jsonl", [_response(sent) for sent in day.sent])
    _write_truth(run, told)
    return told


def starter(build: int, kind: str, options: Sequence[str], kept: Path) -> Callable[[Path, str], Server]:
    """What starts a server of this build with a model of this kind, or of the one that it is asked for.

    Models, and files that the options name, are made in ``kept``.
    """
    kept.mkdir(parents=True, exist_ok=True)

    def start(log: Path, other: str) -> Server:
        named = [str(_made(kept, option)) if option in FILES else option for option in options]
        return Server(build, _made(kept, f"{other or kind}.gguf"), named, {}, log)

    return start


def _made(folder: Path, name: str) -> Path:
    """One of the files, made where the folder lacks it."""
    return folder / name if (folder / name).exists() else FILES[name]().save(folder / name)


def recount(plan: Plan, out: Path) -> dict[str, Any]:
    """Make the truth of a run again from its bodies and responses, without a server."""
    run = out / plan.name
    old = json.loads((run / "truth.json").read_text("utf-8"))
    asked = [json.loads(line) for line in (run / "requests.jsonl").read_text("utf-8").splitlines()]
    heard = [json.loads(line) for line in (run / "responses.jsonl").read_text("utf-8").splitlines()]
    sent = [
        Sent(
            q["n"], q["endpoint"], q["conversation"], q["client"], q["body"], a["started"], a["ended"],
            a["status"], row["cut"], a, row["life"],
        )
        for q, a, row in zip(asked, heard, old["requests"], strict=True)
    ]  # fmt: skip
    told = _truth(plan, sent)
    _write_truth(run, told)
    return told


def _write_truth(run: Path, told: dict[str, Any]) -> None:
    (run / "truth.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _request(sent: Sent) -> dict[str, Any]:
    """A body, and beside it whose it was."""
    whose = {"conversation": sent.conversation, "client": sent.client}
    return {"n": sent.number, "endpoint": sent.path, **whose, "body": sent.body}


def _response(sent: Sent) -> dict[str, Any]:
    """An answer without what no client reads of it, such as an embedding, and when it came."""
    read = ("id", "choices", "content", "heard", "usage", "timings")
    kept = {name: sent.answer[name] for name in read if name in sent.answer}
    return {"n": sent.number, "status": sent.status, "started": sent.started, "ended": sent.ended, **kept}


def _truth(plan: Plan, sent: list[Sent]) -> dict[str, Any]:
    accounted = truth.account(sent)
    total = truth.totals(accounted)
    situation = plan.situation
    return {
        "situation": situation.name,
        "what": " ".join((situation.traffic.__doc__ or "").split()),
        "memory": plan.kind,
        "build": plan.build,
        "wheel": wheels.VERSIONS[plan.build],
        "level": plan.level,
        "options": list(plan.options),
        "mended": plan.mended,
        "cause": "none" if plan.mended else situation.cause,
        "going_back": situation.going_back,
        "total": total,
        "side": truth.side(total),
        "not_placed": sum(not done.rows for done in accounted),
        "requests": [_row(done) for done in accounted],
    }


def _row(done: truth.Accounted) -> dict[str, Any]:
    return {
        "n": done.sent.number,
        "conversation": done.sent.conversation,
        "client": done.sent.client,
        "status": done.sent.status,
        "cut": done.sent.cut,
        "life": done.sent.life,
        "prompt": done.prompt,
        "cached": done.cached,
        "processed": done.processed,
        "previous": done.previous,
        "previous_tokens": done.previous_tokens,
        "shared": done.shared,
        "rows": done.rows,
    }
