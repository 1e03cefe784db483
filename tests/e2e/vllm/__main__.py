"""Runs scenarios by name, all of them without one. Exit status 1 when one fails, 2 for a name that is none."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from e2e.case import NotAsClaimedError
from e2e.server import ServerDiedError
from e2e.vllm import scenarios
from e2e.vllm.check import analyze, title, unmet
from e2e.vllm.scenario import FaultNotMadeError, Scenario, made, record, shares


def passes(scenario: Scenario, folder: Path, recorded: bool) -> bool:
    """Record a scenario, unless that was done before, and print what server and cachedoctor say of it."""
    started = time.monotonic()
    print(f"{scenario.name} ({scenario.model})", flush=True)
    try:
        if not recorded:
            record(scenario, folder)
        told = made(scenario, folder)
        cached, prompt = shares(told)
        print(f"  vLLM: {cached} of {prompt} prompt tokens cached in {len(told)} requests", flush=True)
        report = analyze(folder, scenario.told)
        said = [f"{title(f)} ({f['severity']}, {f['confidence']})" for f in report["findings"]]
        print(f"  cachedoctor: {', '.join(said) or 'no finding'}", flush=True)
        faults = unmet(scenario, told, report)
    except (FaultNotMadeError, NotAsClaimedError, ServerDiedError, OSError) as wrong:
        faults = [str(wrong)]
    for fault in faults:
        print(f"  FAILED: {fault}", flush=True)
    print(f"  {time.monotonic() - started:.1f} s", flush=True)
    return not faults


def main() -> int:
    """Run what was asked for."""
    known = {scenario.name: scenario for scenario in scenarios.ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e vllm", description="Faults on a real vLLM, and their names.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known)}")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", metavar="FOLDER", type=Path, help="leave logs, metrics and responses there")
    where.add_argument("--check", metavar="FOLDER", type=Path, help="start nothing: read what --keep left there")
    asked = parser.parse_args()
    names = asked.names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    if asked.keep and (there := [name for name in names if (asked.keep / name).exists()]):
        parser.error(f"{asked.keep} has {', '.join(there)} already")
    # As with Ctrl-C: leave by an exception, so that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cachedoctor-e2e-") as folder:
        root = (asked.keep or asked.check or Path(folder)).absolute()
        failed = [name for name in names if not passes(known[name], root / name, bool(asked.check))]
    print(f"{len(names) - len(failed)} of {len(names)} scenarios as they should be")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
