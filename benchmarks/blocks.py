"""Replay vLLM's cache of blocks from request bodies, and compare it with what each response says was reused.

usage: blocks.py DIR [--list]

DIR is a folder of recordings that ``sh scripts/e2e vllm --keep DIR`` left: DIR/<run>/{server.log,requests.jsonl,
usage.json} and beside them the folder of the model with its tokenizer. The size of blocks and cache is what the log
says. Runs without bodies, with several engines or with caching off are passed over.

For every run: requests whose replayed tokens are those of the response, tokens reused as said and as replayed, what an
endless cache would have reused, and what the rolling rate tells of the prompt tokens. ``--list`` names the requests
that differ. Exits 1 when fewer than 99 % of all requests are equal.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import cachedoctor
from cachedoctor.diagnosis.replay.block_cache import BlockSettings, SentPrompt, ServedPrompt, serve
from cachedoctor.model import SamplePeriod, Session
from cachedoctor.prompts import inputs, run_diff
from cachedoctor.prompts.model_files import ModelFiles

ENOUGH = 0.99


class Run(NamedTuple):
    name: str
    said: list[tuple[int, int]]
    """Prompt and cached tokens of each response."""
    lengths: list[int]
    served: list[ServedPrompt]
    looked_up: tuple[int, int] | None


def settings_of(session: Session) -> BlockSettings | None:
    block, kv = session.setting("block_size"), session.setting("kv_tokens")
    if not isinstance(block, int) or session.setting("prefix_caching") is False or session.setting("data_parallel"):
        return None
    if session.memory != "hybrid":
        return BlockSettings(block, kv)
    large = session.setting("attention_block") or block
    states = "few" if session.since("0.29") else "every"
    # The three groups of recurrent layers of the recordings; where the block is enlarged in the worker alone, the
    # scheduler continues the small one.
    return BlockSettings(large, kv, states, split=block, state_blocks=3)


def replayed(folder: Path) -> Run | None:
    log, bodies, usage = (folder / name for name in ("server.log", "requests.jsonl", "usage.json"))
    if not (log.exists() and bodies.exists() and usage.exists()):
        return None
    session = cachedoctor.analyze(log).sessions[0]
    settings, model = settings_of(session), next(folder.glob("*/tokenizer.json"), None)
    if settings is None or model is None:
        return None
    template = str(model.with_name("tokenizer_config.json"))
    files = ModelFiles(str(model.parent), template)
    try:
        prompts = [run_diff.rendered(p, run_diff.DiffJob(template=template), files) for p in inputs.load(str(bodies))]
        tokens = [list(files.cutter.encode(p.text).ids) for p in prompts]
    finally:
        files.close()
    salts = [str((p.body or {}).get("cache_salt", "")) for p in prompts]
    served = serve([SentPrompt(t, key=salt) for t, salt in zip(tokens, salts, strict=True)], settings)  # type: ignore[arg-type]
    told = [entry["usage"] for entry in json.loads(usage.read_text("utf-8"))]
    said = [(u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"] or 0) for u in told]
    (period,) = [p for p in session.periods if isinstance(p, SamplePeriod) and p.busy][:1] or [None]
    known = period is not None and period.looked_up_tokens is not None and period.looked_up_within is not None
    rolling = (period.looked_up_tokens, period.looked_up_within) if period is not None and known else None
    return Run(folder.name, said, [len(t) for t in tokens], served, rolling)  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    equal = count = 0
    print("run | requests equal | reused, as said | replayed | endless | prompt tokens, as said | by the rate")
    for folder in sorted(path for path in asked.dir.iterdir() if path.is_dir()):
        run = replayed(folder)
        if run is None:
            print(f"{folder.name} | passed over")
            continue
        pairs = list(zip(run.said, run.lengths, run.served, strict=True))
        same = [length == prompt and served.reused == cached for (prompt, cached), length, served in pairs]
        equal, count = equal + sum(same), count + len(same)
        prompts, reused = sum(p for p, _ in run.said), sum(c for _, c in run.said)
        again, endless = sum(s.reused for s in run.served), sum(s.endless for s in run.served)
        by_rate = "unknown" if run.looked_up is None else f"{run.looked_up[0]:,} +- {run.looked_up[1]:,}"
        print(
            f"{run.name} | {sum(same)} of {len(same)} | {reused:,} | {again:,} | {endless:,} | {prompts:,} | {by_rate}"
        )
        if asked.list:
            for at, (ok, ((prompt, cached), length, served)) in enumerate(zip(same, pairs, strict=True)):
                if not ok:
                    print(f"  {at}: prompt {prompt} ({length}), cached {cached}, replayed {served.reused}")
    print(f"{equal} of {count} requests equal")
    return int(not count or equal < ENOUGH * count)


if __name__ == "__main__":
    sys.exit(main())
