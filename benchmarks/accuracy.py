"""Compare prompt, cached and processed tokens of every request with what the server itself reported.

usage: accuracy.py DIR [--wrapped] [--workers 2]

DIR is a folder of runs: DIR/**/<run>/{server.log,truth.json}. ``truth.json`` holds ``requests``, each with
``prompt_tokens``, ``cached_tokens``, ``processed_tokens`` (all null: the request got no answer, it is left out).
With ``--wrapped`` also <run>/wrapped/*.log, the same log in the wrapping of a container, a journal and so on; where
such a file begins after the start-up lines, the same numbers are expected.

A request is exact when all three numbers are equal, unknown when some are null and no other differs, wrong when one
differs, missing when the report does not have it. Prints a tally per folder and lists everything but the exact ones.
Exits 1 when a number is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import runs

FIELDS = ("prompt_tokens", "cached_tokens", "processed_tokens")
KINDS = ("exact", "unknown", "wrong", "missing")

Numbers = tuple[int | None, ...]
Verdict = tuple[str, int, Numbers, Numbers | None]
"""(kind, number of the request, what is true, what the report says)."""


def numbers(request: dict[str, Any]) -> Numbers:
    """The three counts of a request."""
    return tuple(request[field] for field in FIELDS)


def kind_of(true: Numbers, ours: Numbers) -> str:
    """Judge one request."""
    if true == ours:
        return "exact"
    return "unknown" if all(o is None or o == t for t, o in zip(true, ours, strict=True)) else "wrong"


def match(truth: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[Verdict]:
    """Pair both lists: equal numbers first, in order where possible, then what agrees in part, then what is left."""
    true = [(r["n"], numbers(r)) for r in truth if any(r[f] is not None for f in FIELDS)]
    left = [numbers(r) for r in ours if r["parent"] is None]
    out: dict[int, Verdict] = {}
    at = 0
    for n, want in true:
        if want in left:
            at = left.index(want, at) if want in left[at:] else left.index(want)
            del left[at]
            out[n] = ("exact", n, want, want)
    for n, want in true:
        found = next((x for x in left if n not in out and any(x) and kind_of(want, x) == "unknown"), None)
        if found is not None:
            left.remove(found)
            out[n] = ("unknown", n, want, found)
    for n, want in true:
        if n in out:
            continue
        near = next((x for x in left if x[0] == want[0]), left[0] if left else None)
        if near is None:
            out[n] = ("missing", n, want, None)
        else:
            left.remove(near)
            out[n] = (kind_of(want, near), n, want, near)
    return [out[n] for n, _ in true]


def judge(log: Path) -> tuple[Path, list[Verdict], str]:
    """Verdicts on one log, and the exception that ended its analysis."""
    run = log.parent.parent if log.parent.name == "wrapped" else log.parent
    report = runs.analyse(log)
    truth = runs.truth(run)["requests"]
    if isinstance(report, str):
        return log, match(truth, []), report
    return log, match(truth, runs.requests(report)), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--wrapped", action="store_true", help="also every log in <run>/wrapped/")
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    a = parser.parse_args()
    logs = [run / "server.log" for run in runs.find(a.dir)]
    if a.wrapped:
        logs += [w for log in list(logs) for w in sorted((log.parent / "wrapped").glob("*.log"))]
    if not logs:
        parser.error(f"no run below {a.dir}: a run is a folder with server.log and truth.json")
    tally: dict[str, Counter[str]] = {}
    listed: list[str] = []
    began = time.monotonic()
    for log, verdicts, crash in runs.over(judge, logs, a.workers):
        is_wrapped = log.parent.name == "wrapped"
        run = log.parent.parent if is_wrapped else log.parent
        group = f"{run.parent.name} (wrapped)" if is_wrapped else run.parent.name
        counts = tally.setdefault(group, Counter())
        counts["logs"] += 1
        counts.update(v[0] for v in verdicts)
        if crash:
            counts["crashes"] += 1
            listed.append(f"crash    {log.relative_to(a.dir)}: {crash}")
        for kind, n, want, got in verdicts:
            if kind != "exact":
                listed.append(f"{kind:8} {log.relative_to(a.dir)} request {n}: true {_show(want)}, report {_show(got)}")
    columns = ("logs", *KINDS, "crashes")
    width = max(map(len, tally)) + 2
    print(f"{'folder':{width}}" + "".join(f"{c:>9}" for c in columns))
    total: Counter[str] = Counter()
    for group in sorted(tally, key=lambda g: ("wrapped" in g, g)):
        total.update(tally[group])
        print(f"{group:{width}}" + "".join(f"{tally[group][c]:9,}" for c in columns))
    print(f"{'all':{width}}" + "".join(f"{total[c]:9,}" for c in columns))
    print(f"\n{time.monotonic() - began:.1f} s. Counts are prompt / cached / processed tokens.")
    for kind in ("crash", "wrong", "missing", "unknown"):
        print(*(line for line in listed if line.startswith(kind)), sep="\n", end="\n" if kind in str(listed) else "")
    return 1 if total["wrong"] or total["crashes"] else 0


def _show(counts: Numbers | None) -> str:
    return "nothing" if counts is None else " / ".join("null" if c is None else f"{c:,}" for c in counts)


if __name__ == "__main__":
    sys.exit(main())
