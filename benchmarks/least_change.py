"""Time of ``diff --least`` on a long request with planted differences, as CPU seconds and as ratio to half of it.

usage: least_change.py [--tokens 50000] [--differences 4] [--tokenizer MODEL.gguf|tokenizer.json]

Prints how many changes were planted and found, what they give back, and CPU seconds, those of the child that counts
with a tokenizer included.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cachedoctor.prompts.run_diff import DiffJob, answer

WORDS = [f"word{number}" for number in range(2_000)]


def request(rng: random.Random, tokens: int) -> dict[str, Any]:
    """A conversation of about so many words."""
    lines = [" ".join(rng.choice(WORDS) for _ in range(40)) for _ in range(tokens // 160)]
    turns = [" ".join(rng.choice(WORDS) for _ in range(200)) for _ in range(tokens * 3 // 4 // 400)]
    roles = ("user", "assistant")
    history = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"messages": [{"role": "system", "content": "\n".join(lines)}, *history]}


def changed(body: dict[str, Any], differences: int, rng: random.Random) -> dict[str, Any]:
    """The next request, with so many words changed along the way."""
    found = copy.deepcopy(body)
    for number in range(differences):
        message = found["messages"][number * (len(found["messages"]) - 2) // max(1, differences)]
        words = message["content"].split(" ")
        words[len(words) // 2] = f"changed{number}"
        message["content"] = " ".join(words)
    found["messages"].append({"role": "user", "content": " ".join(rng.choice(WORDS) for _ in range(200))})
    return found


def seconds(tokens: int, differences: int, tokenizer: str | None) -> float:
    """Run once and print what was found; CPU seconds of this process and its children."""
    rng = random.Random(7)
    body = request(rng, tokens)
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.json", "b.json")]
        for path, value in zip(paths, (body, changed(body, differences, rng)), strict=True):
            path.write_text(json.dumps(value))
        before = _cpu()
        (found,) = answer(str(paths[0]), str(paths[1]), DiffJob(tokenizer, least=True))
        spent = _cpu() - before
    least = found.least
    assert least is not None
    print(
        f"{least.tokens:,} tokens, {differences} planted, {len(least.edits)} found, {least.common:,} -> "
        f"{least.edits[-1].reuse:,} tokens in common, {spent:.2f} s of CPU"
    )
    return spent


def _cpu() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--differences", type=int, default=4)
    parser.add_argument("--tokenizer")
    a = parser.parse_args()
    half = seconds(a.tokens // 2, a.differences, a.tokenizer)
    whole = seconds(a.tokens, a.differences, a.tokenizer)
    print(f"ratio {whole / max(half, 1e-9):.1f}")


if __name__ == "__main__":
    main()
