"""Compare the conversations that were told apart with those that the client really held.

usage: threads.py DIR [--workers 2] [--list]

DIR is a folder of runs: DIR/**/<run>/{server.log,truth.json}. ``truth.json`` holds ``requests``, each with
``conversation`` (a name) and the three token counts by which it is found in the report.

For every request that has a predecessor in its conversation: is the request before it in its inferred thread that
predecessor? For every first request of a conversation: is it the first of its thread? Requests of one conversation that
were sent again unchanged, or whose counts occur twice, may be paired in either order. Prints a tally per scenario.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import runs

FIELDS = ("prompt_tokens", "cached_tokens", "processed_tokens")


def pair(truth: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Requests of both lists with the same counts, in order."""
    left = [r for r in ours if r["parent"] is None]
    out = []
    for true in truth:
        found = next((r for r in left if all(r[f] == true[f] for f in FIELDS)), None)
        if found is not None and true["prompt_tokens"] is not None:
            left.remove(found)
            out.append((true, found))
    return out


def judge(run: Path) -> tuple[str, Counter[str], list[str]]:
    """Tally of one run and a line for each difference."""
    report = runs.analyse(run / "server.log")
    tally: Counter[str] = Counter()
    if isinstance(report, str):
        return run.name, Counter(crash=1), [report]
    said = []
    before_true: dict[str, int] = {}
    before_ours: dict[Any, int] = {}
    for true, ours in pair(runs.truth(run)["requests"], runs.requests(report)):
        want = before_true.get(true["conversation"])
        key = (ours["session"], ours["thread"])
        got = before_ours.get(key) if ours["thread"] is not None else None
        kind = ("first" if want is None else "next") + (" right" if want == got else " wrong")
        tally[kind] += 1
        if want != got:
            said.append(f"{run.parent.name}/{run.name} request {ours['index']}: {want} expected, {got} said")
        before_true[true["conversation"]] = ours["index"]
        if ours["thread"] is not None:
            before_ours[key] = ours["index"]
    return run.name, tally, said


def main() -> None:
    """Judge all runs and print the tally."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=runs.WORKERS)
    parser.add_argument("--list", action="store_true", help="print every difference")
    options = parser.parse_args()
    by_scenario: dict[str, Counter[str]] = defaultdict(Counter)
    lines = []
    for name, tally, said in runs.over(judge, runs.find(options.folder), options.workers):
        by_scenario[name.split("-")[1]].update(tally)
        lines += said
    total: Counter[str] = sum(by_scenario.values(), Counter())
    kinds = ("first right", "first wrong", "next right", "next wrong")
    print(f"{'scenario':10}" + "".join(f"{kind:>14}" for kind in kinds))
    for name, tally in sorted(by_scenario.items()):
        print(f"{name:10}" + "".join(f"{tally[kind]:14}" for kind in kinds))
    print(f"{'all':10}" + "".join(f"{total[kind]:14}" for kind in kinds))
    if options.list:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
