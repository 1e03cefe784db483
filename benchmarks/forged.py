"""Can a prompt plant findings, or hide them? Analyses logs with forged lines in printed prompts, and without.

usage: forged.py

The forgeries are those of tests/forgeries.py: lines of llama-server with and without a clock, in records of other
programs, and lines of other engines, in texts after ``old:`` and ``new:``, in bodies and logged prompts. A report is
changed when it differs from that of the same log with prose in their place in anything but bytes and the count of such
lines. Where the server's lines have no clock, nothing tells forged lines without a clock apart: there it counts whether
the report says how many there are. Prints a row for each kind of log; exits 1 when a report changed where lines can be
told apart, or is silent where they cannot.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import forgeries
import table
from plan import Plan
from table import Row

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.report.wire import report_v1

PART = "forged"


def report(log: str) -> tuple[dict[str, Any], int]:
    """The report of a log without what lines of prose change, and how many forged lines it counts."""
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open("log")
    analyzer.feed(log.encode())
    report_v1.render(analyzer.finish(), out)
    found: dict[str, Any] = json.loads(out.getvalue())
    [info] = found["inputs"]
    info["bytes"] = 0
    counted: int = info.pop("imitations")
    return found, counted


def rows(plan: Plan | None = None) -> Iterator[Row]:
    """A row for each kind of log. Of the plan it takes whether it is quick: then one forgery of 40 is tried."""
    step = 40 if plan is not None and plan.is_quick else 1
    for case in forgeries.CLOCKED:
        for around in forgeries.AROUND:
            yield changed(f"{case}, {around}", islice(forgeries.forgeries(case, around), 0, None, step))
        yield changed(f"{case}, --log-jsonl", islice(forgeries.in_one_record(case), 0, None, step))
        yield changed(f"{case}, request body", islice(forgeries.in_bodies(case), 0, None, step))
    for engine in forgeries.LOGGED:
        yield changed(f"{engine}, logged prompt", islice(forgeries.in_logged_prompts(engine), 0, None, step))
    for case in forgeries.UNCLOCKED:
        yield silent(f"{case}, no clock", islice(forgeries.forgeries(case), 0, None, step))
        yield changed(f"{case}, no clock, forged with one", islice(forgeries.with_clocks(case), 0, None, step))


def changed(case: str, made: Iterable[forgeries.Forgery]) -> Row:
    """How many forgeries change the report."""
    tried, wrong = 0, []
    known: dict[str, dict[str, Any]] = {}
    for forgery in made:
        tried += 1
        if forgery.harmless not in known:
            known[forgery.harmless] = report(forgery.harmless)[0]
        if report(forgery.planted)[0] != known[forgery.harmless]:
            wrong.append(forgery.name)
    return _row(case, tried, wrong, "changed the report")


def silent(case: str, made: Iterable[forgeries.Forgery]) -> Row:
    """How many forgeries change the report, and it does not say that there are such lines."""
    tried, wrong = 0, []
    for forgery in made:
        tried += 1
        found, counted = report(forgery.planted)
        if not counted and found != report(forgery.harmless)[0]:
            wrong.append(forgery.name)
    return _row(case, tried, wrong, "changed the report and are not counted in it")


def _row(case: str, tried: int, wrong: list[str], what: str) -> Row:
    named = f" ({'; '.join(wrong[:3])})" if wrong else ""
    return Row(
        PART, case, None, f"{tried} forgeries, {len(wrong)} {what}{named}", len(wrong) / tried, "share that did", 0.0
    )


def main() -> int:
    print(table.head(False), flush=True)
    marked = 0
    for row in rows():
        print(table.plain(row.cells()), flush=True)
        marked += row.is_marked
    return 1 if marked else 0


if __name__ == "__main__":
    sys.exit(main())
