"""What cachedoctor takes before and beside reading, against a Python that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import gen_log
from plan import Plan, megabytes
from process import analyze, measure, ours
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
    plan.discard(log)
