"""Runs cases by name, all of them without one. Exit status 1 when a case fails, 2 for a name that is none."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from e2e import cases
from e2e.case import Case, NotAsClaimedError, run
from e2e.server import ServerDiedError


def tried(case: Case) -> bool:
    """Run one case and print what it saw; whether all of it was as claimed."""
    started = time.monotonic()
    print(f"{case.name} (b{case.setup.build}, {case.setup.model})", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="cachedoctor-e2e-") as folder:
            for seen in run(case, Path(folder)):
                print(f"  {seen}", flush=True)
    except (NotAsClaimedError, ServerDiedError) as wrong:
        print(f"  {'known: ' + case.known if case.known else 'FAILED'}: {wrong}", flush=True)
        return bool(case.known)
    finally:
        print(f"  {time.monotonic() - started:.1f} s", flush=True)
    if case.known:
        print(f"  FAILED: mended, so remove its mark: {case.known}")
    return not case.known


def main() -> int:
    """Run what was asked for."""
    known = {case.name: case for case in cases.ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e", description="Faults on a real server, cured as printed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known)}")
    names = parser.parse_args().names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(known)}")
    # As with Ctrl-C: leave by an exception, so that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    failed = [name for name in names if not tried(known[name])]
    marked = [name for name in names if known[name].known and name not in failed]
    cured = len(names) - len(failed) - len(marked)
    print(f"{cured} of {len(names)} cases cured in {time.monotonic() - started:.0f} s")
    if marked:
        print(f"known not to be: {', '.join(marked)}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
