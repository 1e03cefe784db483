"""Tries what ``cachedoctor tune`` names for memory and agents on real servers; exit status 1 unless all hold."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from e2e.server import ServerDiedError
from e2e.worth.trials import ALL
from e2e.worth.tried import NotTriedError, Outcome, tried


def told(outcome: Outcome) -> bool:
    """Print a row; whether the setting keeps the reuse, the next smaller one loses, and the peak is a lower bound."""
    good = outcome.keeps and outcome.loses and outcome.is_bound
    peak = "" if outcome.peak is None else f"  peak >= {outcome.peak[0]:.1f}, grew {outcome.peak[1]:.1f} MiB"
    print(
        f"{outcome.trial.name:38} {outcome.named:38} {outcome.with_named:8,} of {outcome.best:8,}  "
        f"{outcome.smaller}: {outcome.with_smaller:,}{peak}  {'ok' if good else 'OFF'}",
        flush=True,
    )
    return good


def main() -> int:
    """Try what was asked for."""
    known = {trial.name: trial for trial in ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e worth", description="Memory and agents on real servers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"begin of any of: {', '.join(known)}; all without")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and bodies in FOLDER, a new one")
    a = parser.parse_args()
    chosen = [trial for name, trial in known.items() if not a.names or name.startswith(tuple(a.names))]
    if not chosen:
        parser.error(f"no such trial; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = 0
    with tempfile.TemporaryDirectory(prefix="cachedoctor-worth-") as scratch:
        for trial in chosen:
            try:
                good += told(tried(trial, (a.keep or Path(scratch)).resolve() / trial.name))
            except (NotTriedError, ServerDiedError, OSError) as wrong:
                print(f"{trial.name:38} FAILED: {wrong}", flush=True)
    print(f"{good} of {len(chosen)} trials hold")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
