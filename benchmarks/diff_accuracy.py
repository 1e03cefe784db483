"""Check where `cachedoctor diff` says that two prompts diverge, against runs whose prompts were made in a laboratory.

usage: diff_accuracy.py DIR [--tokenizers FOLDER_OF_GGUF] [--show N]

DIR/**/{requests.jsonl,truth.json}: for every request whose truth has a divergence_char_offset, the body before it in
its conversation is rendered with the model's own chat template and followed by the reply that the server gave (from
responses.jsonl), as the slot holds it; the request's body is rendered too, and the two are compared. "offset" is the
first differing character, "token" the first differing token (lcp_tokens_prev_same_conversation). truth.json names the
model's GGUF, which --tokenizers holds (default DIR); template and vocabulary are read from it. Exit status 1 when a
number differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import runs

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import compare_prompts, request_bodies, run_diff
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers.base import Tokenizer

BEFORE_NORMALISING = 1
"""Build to assume when a run does not say it; one wheel of the runs does not, and it is older than b8929."""


class Verdict(NamedTuple):
    """What came of one request."""

    run: str
    number: int
    offset: tuple[int, int] | None
    """Truth, ours."""
    token: tuple[int, int] | None
    kind: str
    skipped: str


@lru_cache(maxsize=8)
def model_files(path: Path) -> ModelFiles:
    return ModelFiles(str(path))


def lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a JSONL file; none when there is no such file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def reply(response: dict[str, Any]) -> str:
    """Text of an answer, as it is in the slot after the prompt."""
    content = response.get("content")
    content = content.get("content") if isinstance(content, dict) else content
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""


def ask_of(truth: dict[str, Any]) -> run_diff.DiffJob:
    found = re.findall(r"\bb(\d{4,5})\b", str(truth.get("build")))
    return run_diff.DiffJob(build=int(found[-1]) if found else BEFORE_NORMALISING)


def rendered(request: dict[str, Any], files: ModelFiles, ask: run_diff.DiffJob) -> Prompt | None:
    found = request_bodies.find(request)
    prompts = request_bodies.prompts_of(found.body, found.kind, f"request {request['n']}") if found else []
    return run_diff.rendered(prompts[0], ask, files) if len(prompts) == 1 else None


def judge(name: str, row: dict[str, Any], held: Prompt | None, new: Prompt | None, cutter: Tokenizer) -> Verdict:
    """Compare one request with what the slot held before it."""

    def skip(why: str) -> Verdict:
        return Verdict(name, row["n"], None, None, "", why)

    if held is None or new is None:
        return skip("no body to compare with")
    if not (held.rendered and new.rendered):
        return skip("the model has no chat template")
    if held.images or new.images:
        return skip("images: the truth counts stand-ins for them")
    answer = compare_prompts.compare(held, new, cutter, compare_prompts.DiffOptions())
    offset = answer.first.char if answer.first else len(new.text)
    token = answer.common_prefix_tokens - cutter.leading(new.text)
    offsets = (row["divergence_char_offset"], offset)
    tokens = row.get("lcp_tokens_prev_same_conversation")
    kind = answer.first.kind if answer.first else "equal"
    return Verdict(name, row["n"], offsets, None if tokens is None else (tokens, token), kind, "")


def run_of(folder: Path, models: Path) -> list[Verdict]:
    """All requests of one run, in the order in which they ended."""
    truth = runs.truth(folder)
    name = f"{folder.parent.name}/{folder.name}"
    wanted = {row["n"]: row for row in truth["requests"] if row.get("divergence_char_offset") is not None}
    model = models / str(truth.get("gguf"))
    template = (truth.get("server_params") or {}).get("chat_template")
    reason = "" if model.is_file() else "no GGUF of that name"
    reason = reason or ("served with another chat template" if template else "")
    if reason:
        return [Verdict(name, number, None, None, "", reason) for number in wanted]
    return list(_verdicts(folder, name, wanted, model_files(model), ask_of(truth)))


def _verdicts(
    folder: Path, name: str, wanted: dict[int, dict[str, Any]], files: ModelFiles, ask: run_diff.DiffJob
) -> Iterator[Verdict]:
    replies = {response["n"]: reply(response) for response in lines(folder / "responses.jsonl")}
    last: dict[str, Prompt | None] = {}
    for request in lines(folder / "requests.jsonl"):
        if "/chat/completions" not in request["endpoint"] and "/messages" not in request["endpoint"]:
            continue
        row, before = wanted.get(request["n"]), last.get(request["conversation"])
        try:
            new = rendered(request, files, ask)
            if row is not None:
                yield judge(name, row, before, new, files.cutter)
        except CacheDoctorError as error:
            new = None
            if row is not None:
                yield Verdict(name, request["n"], None, None, "", f"error: {error.message}")
        if new is not None:
            new = Prompt(new.path, new.kind, new.text + replies.get(request["n"], ""), new.spans, new.body, new.images,
                         rendered=new.rendered)  # fmt: skip
        last[request["conversation"]] = new


def tally(verdicts: list[Verdict], show: int) -> int:
    """Print the counts and the first that differ; how many differ."""
    wrong = 0
    print(f"{'':8}{'exact':>8}{'differs':>9}{'skipped':>9}")
    for name in ("offset", "token"):
        pairs = [(v, pair) for v in verdicts if (pair := getattr(v, name)) is not None]
        bad = [(v, pair) for v, pair in pairs if pair[0] != pair[1]]
        wrong += len(bad)
        print(f"{name:8}{len(pairs) - len(bad):>8,}{len(bad):>9,}{len(verdicts) - len(pairs):>9,}")
        for verdict, (truth, ours) in bad[:show]:
            print(f"    {verdict.run} request {verdict.number}: truth {truth:,}, ours {ours:,} ({verdict.kind})")
    for reason, count in Counter(v.skipped for v in verdicts if v.skipped).most_common():
        print(f"skipped {count:,}: {reason}")
    kinds = Counter(v.kind for v in verdicts if v.kind).most_common()
    print("kinds: " + ", ".join(f"{kind} {count:,}" for kind, count in kinds))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--tokenizers", type=Path, metavar="FOLDER", help="holds the models' GGUF files")
    parser.add_argument("--show", type=int, default=10, help="pairs that differ to print, for each number")
    options = parser.parse_args()
    folders = sorted(p.parent for p in options.dir.rglob("truth.json") if (p.parent / "requests.jsonl").is_file())
    work = partial(run_of, models=options.tokenizers or options.dir)
    verdicts = [verdict for found in runs.over(work, folders) for verdict in found]
    if not verdicts:
        print(f"no request of known divergence below {options.dir}", file=sys.stderr)
        return 2
    print(f"{len(folders):,} runs, {len(verdicts):,} pairs of consecutive requests")
    return 1 if tally(verdicts, options.show) else 0


if __name__ == "__main__":
    sys.exit(main())
