"""Replay runs of real llama-servers, from request bodies or from the log alone, and compare every request.

usage: replay.py DIR --models DIR [--log] [--only TEXT] [--workers 2]

DIR is a folder of runs: DIR/**/<run>/{server.log,truth.json,requests.jsonl,responses.jsonl}. ``truth.json`` says how
the server was started (``server_params`` or ``options``), and what it reused of every request. The build is the number
that ``truth.json`` has, or of four digits or more that ends the name of the folder above, or is in BUILDS. The
folder of models has ``KIND.gguf`` for tokens and template.

equal      the tokens reused are those that the replay gives
DIFFERENT  they are not; listed
unmatched  the request is not in the log, or no body has its length; listed
no count   the server never said what it reused: refused, cancelled, or the process had crashed

With ``--log`` the bodies are not checked, and the settings are those that the log shows. ``derived`` are requests
whose length or reuse no line prints, so that they follow from other numbers; ``assumed`` are turns of a conversation
whose common prefix with the turn before is in no line. Exits 1 where fewer than 99 % are equal (95 % of those printed).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import runs

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Happened, TimedRequest
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.replaying import from_bodies, from_log
from cachedoctor.doctor.replaying.from_log import recorded
from cachedoctor.knowledge import cmdline
from cachedoctor.model import Judged, Request, Session
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.request_bodies import kind_of, prompts_of

BUILDS = {"0.2.0": 6301, "0.2.4": 6900, "0.2.8": 7551, "0.2.14": 8353}
"""Of wheels whose version does not say it."""
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"memory": "attention", "token_bytes": 268.0},
    "swa": {"memory": "swa", "window": 128},
    "hybrid": {"memory": "hybrid", "token_bytes": 148.0, "state_bytes": 16800.0, "checkpoint_bytes": 16800.0},
    "mamba": {"memory": "recurrent"},
    "recurrent": {"memory": "recurrent"},
}
"""The lab's models; bytes from the sizes that the servers print."""
DAYS_WINDOW = 1024
"""Sliding window of the model that ``scripts/e2e days`` runs."""
WANTED = {False: 0.99, True: 0.95}


class Watching(Analyzer):
    """An analyzer that keeps every finished request."""

    def __init__(self, build: int | None) -> None:
        super().__init__(build)
        self.requests: list[Request] = []

    def _ask(self, request: Request) -> Judged:
        self.requests.append(request)
        return super()._ask(request)

    def session(self, index: int) -> Session:
        """A session by its number."""
        return self._sessions[index]


class Row(NamedTuple):
    """One request."""

    verdict: str
    detail: str


class Action(NamedTuple):
    """A slot file that was asked for."""

    after: int
    """Number of the body before it."""
    happened: Happened


class Run:
    """A run, and what is beside its log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.truth = folder, runs.truth(folder)
        self.build = self.truth["build"] if isinstance(self.truth["build"], int) else _build(folder)
        self.kind: str = self.truth.get("model_kind") or self.truth["memory"]
        self.name = self.truth.get("scenario") or self.truth["situation"]
        self.actions: list[Action] = []
        self.numbers: list[int] = []
        self.sent: list[from_bodies.SentBody] = []

    def settings(self) -> ServerSettings:
        """The settings that it was started with."""
        if "options" in self.truth:
            said = cmdline.settings(cmdline.parse("llama-server " + " ".join(self.truth["options"])))
            slots, context = said.get("n_slots"), said.get("n_ctx", 4096)
            if slots is None and "-np" in self.truth["options"]:
                slots = 1
            params: dict[str, Any] = {**said, "n_parallel": slots or -1, "n_ctx": context}
        else:
            params = {**self.truth["server_params"]}
            params["ctx_checkpoints"] = params.get("n_ctx_checkpoints")
        if self.kind == "swa" and "options" in self.truth:
            params["window"] = DAYS_WINDOW
        return ServerSettings(
            build=self.build,
            **MODELS[self.kind] | {name: params[name] for name in ("window",) if name in params},
            slots=None if params["n_parallel"] < 0 else params["n_parallel"],
            context=params["n_ctx"],
            kv_unified=params.get("kv_unified"),
            cache_ram_mib=params.get("cache_ram_mib"),
            ctx_checkpoints=params.get("ctx_checkpoints"),
            swa_full=params.get("swa_full", False),
            cache_reuse=params.get("n_cache_reuse", 0),
            projector=bool(self.truth.get("extra_cfg", {}).get("mmproj")),
        )

    def watched(self) -> Watching:
        """Its log, analysed."""
        watching = Watching(self.build)
        watching.open(str(self.folder / "server.log"))
        watching.feed((self.folder / "server.log").read_bytes())
        watching.finish()
        return watching

    def read_bodies(self) -> None:
        """Bodies and answers, and the slot files between them."""
        answers = {one["n"]: one for one in _lines(self.folder / "responses.jsonl")}
        for line in _lines(self.folder / "requests.jsonl"):
            action = re.fullmatch(r"/slots/(\d+)\?action=(save|restore|erase)", line["endpoint"])
            if action:
                what: Any = action[2]
                name = (line["body"] or {}).get("filename", "")
                self.actions.append(Action(line["n"], Happened(0, what, int(action[1]), name)))
                continue
            answer = answers.get(line["n"], {})
            kind = kind_of(line["body"], line["endpoint"])
            prompt = None if kind is None else prompts_of(line["body"], kind, f"#{line['n']}")[0]
            usage, timings = answer.get("usage") or {}, answer.get("timings") or {}
            generated = timings.get("predicted_n") or usage.get("completion_tokens") or usage.get("output_tokens")
            self.sent.append(from_bodies.SentBody(prompt, _text(answer), generated, bool(usage or timings)))
            self.numbers.append(line["n"])

    def happened(self, numbers: Sequence[int | None], asked: Sequence[TimedRequest]) -> list[Happened]:
        """Slot files, before the request that was sent next."""
        found = []
        for action in self.actions:
            later = [one.started for n, one in zip(numbers, asked, strict=True) if n is not None and n > action.after]
            moment = min(later) - 1 if later else asked[-1].ended + 1
            found.append(Happened(moment, action.happened.what, action.happened.slot, action.happened.file))
        return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _build(folder: Path) -> int:
    found = re.search(r"(\d{4,})$", folder.parent.name)
    return int(found[1]) if found else BUILDS[folder.parent.name]


def _text(answer: dict[str, Any]) -> str:
    """The text of an answer, whatever the API."""
    choices = answer.get("choices")
    content = answer.get("content") or (choices[0].get("message") or choices[0] if choices else None)
    if isinstance(content, dict):
        content = content.get("content", content.get("text"))
    if content is None:
        content = (answer.get("other") or {}).get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return content or ""


FILES: dict[str, ModelFiles] = {}


def judge_bodies(work: tuple[Path, str]) -> tuple[Path, str, list[Row]]:
    """All requests of one run, replayed from its bodies."""
    folder, models = work
    run = Run(folder)
    run.read_bodies()
    path = str(Path(models) / f"{run.kind}.gguf")
    files = FILES[path] if path in FILES else FILES.setdefault(path, ModelFiles(path, path))
    built = from_bodies.build(run.sent, files, run.build, run.watched().requests)
    traffic = built.traffic
    numbers = [None if at is None else run.numbers[at] for at in built.sent]
    traffic.happened = [*traffic.happened, *run.happened(numbers, traffic.asked)]
    served = dict(zip(numbers, serve(traffic, run.settings()), strict=True))
    rows = []
    for one in run.truth["requests"]:
        if "/slots/" not in one.get("endpoint", ""):
            rows.append(_row(one, served.get(one["n"])))
    return folder, f"{run.build} {run.kind}-{run.name}", rows


def _row(truth: dict[str, Any], served: Served | None) -> Row:
    cached = truth["cached"] if "cached" in truth else truth["cached_tokens"]
    if cached is None or truth.get("status", 200) != 200:
        return Row("no count", "")
    if served is None:
        return Row("unmatched", f"request {truth['n']}")
    return Row("equal" if cached == served.reused else "DIFFERENT", f"request {truth['n']}: {cached} reused, {served}")


def judge_log(work: tuple[Path, str]) -> tuple[Path, str, list[Row]]:
    """All requests of one run, replayed from its log alone."""
    run = Run(work[0])
    watching = run.watched()
    rows = []
    if watching.requests:
        built = from_log.build(watching.requests)
        session = watching.session(watching.requests[-1].session)
        served = serve(built.traffic, recorded(session, watching.requests).settings)
        for at, (request, one) in enumerate(zip(built.requests, served, strict=True)):
            rows.append(_log_row(request, one, assumed=at in built.assumed))
    return run.folder, f"{run.build} {run.kind}-{run.name}", rows


def _log_row(request: Request, served: Served, *, assumed: bool) -> Row:
    if request.cached_tokens is None:
        return Row("no count", "")
    kind = "equal" if served.reused == request.cached_tokens else "DIFFERENT"
    if request.seen.cached_tokens is None or request.seen.prompt_tokens is None:
        kind += ", derived"
    if assumed:
        kind += ", assumed"
    return Row(kind, f"task {request.task}: {request.cached_tokens} reused, {served}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--models", required=True)
    parser.add_argument("--log", action="store_true", help="from the log alone")
    parser.add_argument("--only", default="", help="runs whose path contains this text")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    found = [run for run in runs.find(a.dir) if a.only in str(run)]
    if not found:
        parser.error(f"no runs below {a.dir}")
    tally: dict[str, Counter[str]] = {}
    listed: list[str] = []
    for folder, name, rows in runs.over(
        judge_log if a.log else judge_bodies, [(r, a.models) for r in found], a.workers
    ):
        for row in rows:
            tally.setdefault(name, Counter())[row.verdict] += 1
            if row.verdict.startswith(("DIFFERENT", "unmatched")):
                listed.append(f"{folder.relative_to(a.dir)}: {row.verdict}: {row.detail}")
    return _print(tally, listed, log=a.log)


def _print(tally: dict[str, Counter[str]], listed: list[str], *, log: bool) -> int:
    builds: dict[str, Counter[str]] = {}
    for name, counts in sorted(tally.items()):
        builds.setdefault(" ".join([name.split()[0], name.split()[1].split("-")[0]]), Counter()).update(counts)
        if any(verdict.startswith(("DIFFERENT", "unmatched")) for verdict in counts):
            print(f"{name:48}", _words(counts))
    print(*listed, sep="\n")
    total: Counter[str] = Counter()
    for name, counts in sorted(builds.items()):
        total.update(counts)
        print(f"{name:24}", _words(counts))
    wrong = total["DIFFERENT"] + total["unmatched"] + total["DIFFERENT, assumed"]
    equal = total["equal"] + total["equal, assumed"]
    share = equal / max(1, equal + wrong)
    print(f"{'all':24}", _words(total), f"{share:.2%}")
    return 0 if share >= WANTED[log] else 1


def _words(counts: Counter[str]) -> str:
    return "  ".join(f"{verdict} {count:,}" for verdict, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
