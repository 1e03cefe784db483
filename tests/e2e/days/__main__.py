"""Plays days on real servers, one after another. Exit status 1 when one could not be played, 2 for an unknown name."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import wheels
from e2e.days import situations
from e2e.days.run import LEVELS, Plan, play, recount
from e2e.days.truth import ROWS, NotAsRenderedError
from e2e.server import ServerDiedError


def plans(chosen: list[situations.Situation], kinds: list[str], builds: list[int], levels: list[str]) -> list[Plan]:
    """Every run that was asked for; after a faulty day comes the same one without its fault."""
    out = []
    for build, level, kind, situation in itertools.product(builds, levels, kinds, chosen):
        if kind in situation.kinds:
            mended = [Plan(situation, kind, build, level, mended=True)] if situation.is_faulty else []
            out += [Plan(situation, kind, build, level), *mended]
    return out


def played(plan: Plan, out: Path, work: Callable[[Plan, Path], dict[str, Any]]) -> bool:
    """Do ``work`` on one day and print its account; whether that could be done."""
    began = time.monotonic()
    try:
        told = work(plan, out)
    except (ServerDiedError, NotAsRenderedError, AssertionError, OSError) as wrong:
        print(f"{plan.name}: FAILED: {wrong}", flush=True)
        return False
    rows = ", ".join(f"{row} {told['total'][row]:,}" for row in ROWS)
    print(f"{plan.name}: {told['side']} ({rows}; {time.monotonic() - began:.1f} s)", flush=True)
    return True


def main() -> int:
    """Run what was asked for."""
    known = {situation.name: situation for situation in situations.ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e days", description="Mixed days on a real llama-server.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known)}; all without one")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the runs are written")
    parser.add_argument("--kind", action="append", choices=situations.ALL_KINDS, help="memory of the model; repeatable")
    parser.add_argument("--build", action="append", type=int, choices=sorted(wheels.VERSIONS), help="repeatable")
    parser.add_argument("--level", action="append", choices=list(LEVELS), help="of the log; repeatable")
    parser.add_argument("--no-mended", action="store_true", help="not the faulty days without their fault")
    parser.add_argument("--again", action="store_true", help="also those that lie in FOLDER already")
    parser.add_argument("--recount", action="store_true", help="make the truth of those in FOLDER anew; no server")
    a = parser.parse_args()
    if unknown := [name for name in a.names if name not in known]:
        parser.error(f"no situation {', '.join(unknown)}; there are {', '.join(known)}")
    # As with Ctrl-C: leave by an exception, so that servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [known[name] for name in a.names] or list(known.values())
    out = a.out.resolve()
    todo = plans(chosen, a.kind or ["dense"], a.build or [wheels.NEWEST], a.level or list(LEVELS))
    there = {plan.name for plan in todo if (out / plan.name / "truth.json").exists()}
    if a.recount:
        todo = [plan for plan in todo if plan.name in there]
    else:
        todo = [plan for plan in todo if a.again or plan.name not in there]
    todo = [plan for plan in todo if not (a.no_mended and plan.mended)]
    failed = [plan.name for plan in todo if not played(plan, out, recount if a.recount else play)]
    print(f"{len(todo) - len(failed)} of {len(todo)} days played", *(f"failed: {name}" for name in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
