"""What cachedoctor takes before and beside reading, against a Python that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gen_log
from plan import Plan, megabytes
from process import Usage, analyze, measure, ours
from table import Row

PART = "start-up"
ERA, SIZE = "b11549-trace", 20_000
ROUNDS = 5
"""At least, unless in a hurry: these are short."""


def rows(plan: Plan) -> Iterator[Row]:
    """Nothing, the version, and the report of a small log."""
    rounds = plan.rounds if plan.is_quick else max(plan.rounds, ROUNDS)
    log = plan.log(f"{ERA}-{SIZE}", gen_log.life(ERA, SIZE, slots=4, seed=1, flush=1))
    nothing = measure([sys.executable, "-c", "pass"], rounds)
    yield Row(PART, "python -c pass", nothing)
    cases = {
        "cachedoctor --version": ours("--version"),
        f"analyze of {megabytes(log) * 1000:.0f} kB, -f json": analyze(log),
        f"analyze of {megabytes(log) * 1000:.0f} kB, -f text": analyze(log, form="text"),
    }
    for case, command in cases.items():
        usage = measure(command, rounds)
        yield Row(PART, case, usage, "", usage.cpu / nothing.cpu, "times python -c pass, by CPU")
    if plan.against is not None:
        for words in (["--version"], ["--help"], ["analyze", str(log), "-f", "json"], ["analyze", str(log)]):
            yield _compared(words, plan.against.resolve(), rounds)
    plan.discard(log)


def _compared(words: list[str], other: Path, rounds: int) -> Row:
    """This checkout against another one: both from source, in turns, so that both see the same minutes."""
    new, old = list[Usage](), list[Usage]()
    for _ in range(rounds):
        for root, usages in ((Path(__file__).resolve().parent.parent, new), (other, old)):
            source = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
            usages.append(measure([sys.executable, "-P", "-m", "cachedoctor", *words], 1, source))
    best, best_there = (min(usages, key=lambda usage: usage.cpu) for usages in (new, old))
    case = " ".join(Path(word).name for word in words)
    return Row(
        PART,
        case,
        best,
        f"{best_there.cpu:.3f} s of CPU at {other.name}",
        best.cpu / best_there.cpu,
        "of the CPU time there",
    )
