"""Replay every run of real servers from its request bodies and from its log alone, and compare each request.

usage: replay.py DIR --tokenizer FILE [--only TEXT] [--log] [--list] [--workers 2]

DIR is a folder of runs: DIR/**/<run>/{server.log,truth.json,requests.jsonl,responses.jsonl}. The build is the number
of four digits or more that ends the name of the folder above, or stands in BUILDS. The settings are those that
``truth.json`` says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import runs

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.replaying import from_bodies, from_log
from cachedoctor.doctor.replaying.recorded_settings import recorded
from cachedoctor.model import Judged, Request, Session
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.request_bodies import kind_of, prompts_of
from cachedoctor.replay.llamacpp.served import Served
from cachedoctor.replay.llamacpp.server import serve
from cachedoctor.replay.llamacpp.settings import Settings
from cachedoctor.replay.traffic import Happened

BUILDS = {"0.2.0": 6301, "0.2.4": 6900, "0.2.8": 7551, "0.2.14": 8353}
"""Of wheels whose version does not say it."""
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"memory": "attention", "token_bytes": 268.0},
    "swa": {"memory": "swa", "window": 128},
    "hybrid": {"memory": "hybrid", "token_bytes": 148.0, "state_bytes": 16800.0, "checkpoint_bytes": 16800.0},
    "mamba": {"memory": "recurrent"},
}
"""The lab's models; bytes from the sizes that the servers print."""


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


def settings_of(truth: dict[str, Any], build: int) -> Settings:
    """The settings that a run was started with."""
    params = truth["server_params"]
    slots = params["n_parallel"]
    return Settings(
        build=build,
        **MODELS[truth["model_kind"]],
        slots=None if slots < 0 else slots,
        context=params["n_ctx"],
        cache_ram_mib=params.get("cache_ram_mib"),
        ctx_checkpoints=params.get("n_ctx_checkpoints"),
        swa_full=params.get("swa_full", False),
        cache_reuse=params.get("n_cache_reuse", 0),
        projector=bool(truth["extra_cfg"].get("mmproj")),
    )


def build_of(run: Path) -> int:
    """The build of a run, from its folder."""
    name = run.parent.name
    found = re.search(r"(\d{4,})$", name)
    return int(found[1]) if found else BUILDS[name]


FILES: dict[str, ModelFiles] = {}


def judge(work: tuple[Path, str]) -> tuple[Path, list[Row]]:
    """All requests of one run, replayed from its bodies."""
    run, tokenizer = work
    truth, build = runs.truth(run), build_of(run)
    files = FILES.setdefault(tokenizer, ModelFiles(tokenizer, str(Path(tokenizer).with_name("dense.gguf"))))
    watching = Watching(build)
    watching.open(str(run / "server.log"))
    watching.feed((run / "server.log").read_bytes())
    watching.finish()
    sent, numbers, happened = _sent(run)
    starts = [r.first_line for r in watching.requests]
    sessions = sorted({r.session: r.first_line for r in reversed(watching.requests)}.values())[1:]
    restarts = [Happened(line - 1, "restart") for line in sessions]
    built = from_bodies.build(sent, files, build, watching.requests, [*restarts])
    asked, numbered = built.traffic.asked, [numbers[at] for at in built.sent]
    built.traffic.happened = [*restarts, *_files(happened, numbered, asked)]
    served = serve(built.traffic, settings_of(truth, build))
    told = dict(zip(numbered, served, strict=True))
    lengths = {n: built.traffic.tree.length(one.prompt) for n, one in zip(numbered, asked, strict=True)}
    rows = [
        _row(one, told.get(one["n"]), lengths.get(one["n"]))
        for one in truth["requests"]
        if "/slots/" not in one["endpoint"]
    ]
    return run, rows


def judge_log(work: tuple[Path, str]) -> tuple[Path, list[Row]]:
    """All requests of one run, replayed from its log alone."""
    run, _ = work
    watching = Watching(build_of(run))
    watching.open(str(run / "server.log"))
    watching.feed((run / "server.log").read_bytes())
    watching.finish()
    if not watching.requests:
        return run, []
    built = from_log.build(watching.requests)
    session = watching.session(watching.requests[-1].session)
    served = serve(built.traffic, recorded(session, watching.requests).settings)
    rows = []
    for at, (request, one) in enumerate(zip(built.requests, served, strict=True)):
        if request.cached_tokens is None:
            rows.append(Row("no count", ""))
            continue
        kind = "equal" if one.reused == request.cached_tokens else "DIFFERENT"
        if request.seen.cached_tokens is None or request.seen.prompt_tokens is None:
            kind += ", derived"
        about = f"task {request.task} of {request.prompt_tokens}: cached {request.cached_tokens} (common {request.common_prefix_tokens}, {request.selected_by}, {request.restored_from_ram}), {'assumed, ' if at in built.assumed else ''}replayed {one}"
        rows.append(Row(kind, about))
    return run, rows


def _files(happened, numbered, asked):
    """Actions on slots, in front of the request that was sent next."""
    out = []
    for n, what, slot, file in happened:
        after = [one.started for m, one in zip(numbered, asked) if m > n]
        out.append(Happened(min(after) - 1 if after else 1 << 40, what, slot, file))
    return out


def _sent(run: Path):
    bodies = [json.loads(line) for line in (run / "requests.jsonl").read_text("utf-8").splitlines()]
    answers = {one["n"]: one for one in map(json.loads, (run / "responses.jsonl").read_text("utf-8").splitlines())}
    sent, numbers, happened = [], [], []
    for body in bodies:
        action = re.fullmatch(r"/slots/(\d+)\?action=(\w+)", body["endpoint"])
        if action:
            happened.append((body["n"], action[2], int(action[1]), (body["body"] or {}).get("filename", "")))
            continue
        kind = kind_of(body["body"], body["endpoint"])
        answer = answers.get(body["n"], {})
        timings, usage = answer.get("timings") or {}, answer.get("usage") or {}
        generated = timings.get("predicted_n") or usage.get("completion_tokens") or usage.get("output_tokens")
        content = answer.get("content")
        text = content.get("content", content.get("text")) if isinstance(content, dict) else content
        if answer.get("other") and isinstance(answer["other"].get("content"), list):
            text = "".join(part.get("text", "") for part in answer["other"]["content"])
        if isinstance(text, list):
            text = "".join(part.get("text", "") for part in text)
        prompt = prompts_of(body["body"], kind, f"{run.name}#{body['n']}")[0]
        sent.append(from_bodies.Sent(prompt, text or "", generated, answer.get("status") == 200 and bool(usage)))
        numbers.append(body["n"])
    return sent, numbers, happened


def _row(truth: dict[str, Any], served: Served | None, length: int | None) -> Row:
    cached = truth["cached_tokens"]
    if cached is None or truth.get("status", 200) != 200:
        return Row("no count", "no answer")
    if served is None:
        return Row(
            "unmatched",
            f"request {truth['n']}: {truth['prompt_tokens']} tokens, local {truth.get('rendered_tokens_local')}",
        )
    about = f"request {truth['n']}: cached {cached}, replayed {served.reused} (common {served.common}, best {served.best}, {served.chosen_by}{', RAM' if served.from_ram else ''}; {served.cause}; {served.decision}) of {truth['prompt_tokens']}/{length}"
    return Row("equal" if cached == served.reused else "DIFFERENT", about)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--log", action="store_true", help="from the log alone")
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    found = [run for run in runs.find(a.dir) if a.only in str(run)]
    tally: dict[tuple[str, str], Counter[str]] = {}
    different: list[str] = []
    for run, rows in runs.over(judge_log if a.log else judge, [(run, a.tokenizer) for run in found], a.workers):
        kind = "-".join(run.name.split("-")[:2])
        for row in rows:
            tally.setdefault((run.parent.name, kind), Counter())[row.verdict] += 1
            if row.verdict in ("DIFFERENT", "unmatched"):
                different.append(f"{run.relative_to(a.dir)}: {row.verdict} {row.detail}")
    total: Counter[str] = Counter()
    by: dict[str, Counter[str]] = {}
    for (folder, kind), counts in sorted(tally.items()):
        total.update(counts)
        by.setdefault(folder, Counter()).update(counts)
        if counts["DIFFERENT"] or counts["unmatched"]:
            print(folder, kind, dict(counts))
    print(*different, sep="\n")
    for folder, counts in by.items():
        print(folder, dict(counts))
    print(dict(total), f"{total['equal'] / max(1, total['equal'] + total['DIFFERENT'] + total['unmatched']):.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
