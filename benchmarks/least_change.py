"""Time of ``diff --least`` on a long request with planted differences, as CPU seconds and as ratio to half of it.

usage: least_change.py [--tokens 50000] [--differences 4] [--pairs 0] [--tokenizer MODEL.gguf|tokenizer.json]

Prints how many changes were planted and found, what they give back, and CPU seconds, those of the child that counts
with a tokenizer included. ``--pairs 30`` takes so many pairs of requests of agents with one to four planted differences
instead (those of ``tests/test_least_change.py``, at this length); exit status 1 where more changes are found than
were planted, where they give back less than the request without differences reuses, or where one takes more than 5 s.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_least_change import planted

from cachedoctor.model.diff import LeastChange
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
    least, spent = _found(body, changed(body, differences, rng), tokenizer)
    print(
        f"{least.tokens:,} tokens, {differences} planted, {len(least.edits)} found, {least.common:,} -> "
        f"{least.edits[-1].reuse:,} tokens in common, {spent:.2f} s of CPU"
    )
    return spent


def _found(a: dict[str, Any], b: dict[str, Any], tokenizer: str | None) -> tuple[LeastChange, float]:
    """The least change between two bodies, and CPU seconds of this process and its children."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.json", "b.json")]
        for path, value in zip(paths, (a, b), strict=True):
            path.write_text(json.dumps(value))
        before = _cpu()
        (found,) = answer(str(paths[0]), str(paths[1]), DiffJob(tokenizer, least=True))
        spent = _cpu() - before
    assert found.least is not None
    return found.least, spent


_SECONDS = 5.0
"""CPU time that a pair may take."""
_WORDS = 160
"""Of a turn, about."""


def pairs(number: int, tokens: int, tokenizer: str | None) -> bool:
    """Take so many pairs with planted differences; whether all are found, and in time."""
    times, lengths, good = [], [], 0
    for seed in range(number):
        a, b, plain, names = planted(seed, tokens // _WORDS)
        found, spent = _found(a, b, tokenizer)
        whole, _ = _found(a, plain, tokenizer)
        times.append(spent)
        lengths.append(found.tokens)
        reuse = found.edits[-1].reuse if found.edits else found.common
        is_good = 1 <= len(found.edits) <= len(names) and reuse >= whole.common - 0.01 * found.tokens - 16
        good += is_good
        if not is_good or spent > _SECONDS:
            print(f"pair {seed}: {names} planted, {[edit.words for edit in found.edits]} found, {spent:.2f} s")
    print(
        f"{good} of {number} pairs: as many changes as were planted or fewer, and all of the reuse; "
        f"{min(lengths):,} to {max(lengths):,} tokens, {min(times):.2f} to {max(times):.2f} s of CPU"
    )
    return good == number and max(times) <= _SECONDS


def _cpu() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--differences", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--tokenizer")
    a = parser.parse_args()
    if a.pairs:
        return 0 if pairs(a.pairs, a.tokens, a.tokenizer) else 1
    half = seconds(a.tokens // 2, a.differences, a.tokenizer)
    whole = seconds(a.tokens, a.differences, a.tokenizer)
    print(f"ratio {whole / max(half, 1e-9):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
