"""How much memory a log takes that is a hundred and a thousand times as large."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gen_log
from plan import Plan, megabytes
from process import analyze, measure, measure_piped
from table import Row

PART = "memory"
ERA = "b11549-trace"
SMALL, LARGE, PIPE = 1 / 20, 5, 50
"""Sizes as multiples of the plan's: 10 MB, 1 GB and 10 GB of 200 MB."""
MEANING = "times the peak of the smallest file"


def rows(plan: Plan) -> Iterator[Row]:
    """A small file, a large one, and (if there is time) a pipe that no disk has to hold."""
    least = {}
    for share in (SMALL, LARGE):
        size = int(plan.size * share)
        log = plan.log(f"{ERA}-{size}", gen_log.blocks(ERA, size))
        for form in ("json", "text"):
            usage = measure(analyze(log, form=form), 1)
            peak = least.setdefault(form, usage.peak)
            yield Row(PART, f"file of {megabytes(log):,.1f} MB, -f {form}", usage, "", usage.peak / peak, MEANING)
        plan.discard(log)
    if plan.is_quick:
        return
    size = plan.size * PIPE
    generator = [sys.executable, str(Path(gen_log.__file__)), "--era", ERA, "--size", str(size)]
    for form in ("json", "text"):
        usage = measure_piped(generator, analyze("-", form=form))
        yield Row(PART, f"pipe of {size / 1e6:,.1f} MB, -f {form}", usage, "", usage.peak / least[form], MEANING)
