"""Follows the first advice of faulty days; exit status 1 unless four of five are fixed and none has no effect."""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from e2e.advice.followed import CLOSE, Followed, follow, rows
from e2e.days import situations
from e2e.days.run import Plan
from e2e.server import ServerDiedError

ENOUGH = 0.8
"""Share of the days that have to be fixed."""
FEW = 64
"""Tokens by which a prediction may be off however little was measured."""
_LEFT_OUT = frozenset({"restarted", "together", "replies_shortened"})
"""Causes that nobody fixes: a restart that was wanted, prompts that come at one time, and replies that cost nothing."""
_DENSE = [one for one in situations.ALL if one.is_faulty and one.cause not in _LEFT_OUT and "dense" in one.kinds]
_OTHERS = [
    ("hybrid", 11549, "no_checkpoints"), ("recurrent", 10566, "no_checkpoints"), ("swa", 9713, "six_on_four"),
    ("swa", 11549, "few_checkpoints"), ("swa", 10566, "intents_first"), ("hybrid", 11549, "five_agents"),
    ("recurrent", 10566, "stamped_tool"),
]  # fmt: skip


def plans() -> list[Plan]:
    """The days: on dense memory those of all causes, and some on other memory and builds."""
    known = {one.name: one for one in situations.ALL}
    dense = [Plan(one, "dense", 11549, "default") for one in _DENSE]
    return [*dense, *(Plan(known[name], kind, build, "default") for kind, build, name in _OTHERS)]


def off(found: Sequence[Followed]) -> list[str]:
    """Days whose prediction is not an estimate, and is off by more than 2 % of what was measured."""
    lines = []
    for one in found:
        last = one.advice[-1] if one.advice else None
        if last is None or last.predicted is None or one.gain is None or not last.is_exact:
            continue
        if abs(last.predicted - one.gain) > max(FEW, CLOSE * abs(one.gain)):
            lines.append(f"{one.plan.name}: predicted {last.predicted:,}, measured {one.gain:,}")
    return lines


def main() -> int:
    """Follow what was asked for."""
    parser = argparse.ArgumentParser(prog="sh scripts/e2e advice", description="First advice, followed to the letter.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="begin of names of days; all without one")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the models are written")
    a = parser.parse_args()
    # As with Ctrl-C: leave by an exception, so that servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [one for one in plans() if not a.names or one.name.startswith(tuple(a.names))]
    if not chosen:
        parser.error(f"no such day; there are {', '.join(one.name for one in plans())}")
    found: list[Followed] = []
    for plan in chosen:
        try:
            found.append(follow(plan, a.out.resolve()))
        except (ServerDiedError, OSError) as wrong:
            print(f"{plan.name:46} FAILED: {wrong}", flush=True)
            continue
        print(*rows(found[-1:]), flush=True)
    tally = Counter(one.verdict for one in found)
    print(f"{len(found)} of {len(chosen)} days: " + ", ".join(f"{tally[name]} {name}" for name in tally))
    wrong = off(found)
    predicted = [one.advice[-1] for one in found if one.advice and one.advice[-1].predicted is not None]
    exact = sum(one.is_exact for one in predicted)
    print(
        f"predicted: {len(predicted)}, no estimates {exact}, of these off by more than 2 %: {len(wrong)}",
        *wrong,
        sep="\n  ",
    )
    is_enough = len(found) == len(chosen) and tally["fixed"] >= ENOUGH * len(found)
    return 0 if is_enough and not tally["no effect"] and not tally["worse"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
