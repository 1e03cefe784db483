"""Tries what ``cachedoctor tune`` says of memory, agents, restores and warming; exit status 1 unless all holds."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.server import ServerDiedError
from e2e.worth import restores, trials, warmed
from e2e.worth.tried import NotTriedError, tried


def _setting(trial: trials.Trial, folder: Path) -> tuple[bool, str]:
    """Whether the setting keeps the reuse, the next smaller one loses, and the peak is a lower bound; and a row."""
    one = tried(trial, folder)
    peak = "" if one.peak is None else f"; peak >= {one.peak[0]:.1f} MiB, grew by {one.peak[1]:.1f}"
    words = f"{one.named}: {one.with_named:,} of {one.best:,}; {one.smaller}: {one.with_smaller:,}{peak}"
    return one.keeps and one.loses and one.is_bound, words


def _warming(trial: warmed.Warm, folder: Path) -> tuple[bool, str]:
    """Whether seconds and tokens are as told, and a row."""
    one = warmed.measured(trial, folder)
    told = one.told
    return one.is_close, (
        f"cost {told['cost_ms']:,.0f} told, {one.cost_ms:,.0f} ms; saved {told['saved_ms']:,.0f} told, "
        f"{one.saved_ms:,.0f} ms; {told['saved_tokens']:,} told, {one.saved_tokens:,} tokens"
    )


def _all() -> dict[str, Callable[[Path], tuple[bool, str]]]:
    found: dict[str, Callable[[Path], tuple[bool, str]]] = {}
    for trial in trials.ALL:
        found[trial.name] = lambda folder, trial=trial: _setting(trial, folder)  # type: ignore[misc]
    for restore in restores.ALL:
        name = f"restore-{restore.name}-{restore.kind}-b{restore.build}"
        found[name] = lambda folder, restore=restore: restores.told_apart(restore, folder)  # type: ignore[misc]
    for warm in warmed.ALL:
        found[warm.name] = lambda folder, warm=warm: _warming(warm, folder)  # type: ignore[misc]
    return found


def main() -> int:
    """Try what was asked for."""
    known = _all()
    parser = argparse.ArgumentParser(prog="sh scripts/e2e worth", description="What tune says, on real servers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"begin of any of: {', '.join(known)}; all without")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and bodies in FOLDER, a new one")
    a = parser.parse_args()
    chosen = {name: run for name, run in known.items() if not a.names or name.startswith(tuple(a.names))}
    if not chosen:
        parser.error(f"no such trial; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    good = 0
    with tempfile.TemporaryDirectory(prefix="cachedoctor-worth-") as scratch:
        for name, run in chosen.items():
            try:
                holds, words = run((a.keep or Path(scratch)).resolve() / name)
            except (NotTriedError, ServerDiedError, OSError) as wrong:
                holds, words = False, f"failed: {wrong}"
            good += holds
            print(f"{name:38} {'ok ' if holds else 'OFF'} {words}", flush=True)
    print(f"{good} of {len(chosen)} trials hold")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
