"""Asks what-if questions and prints a table; exit status 1 when too many answers are off, 2 for an unknown name."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.server import ServerDiedError
from e2e.whatif.asked import Answer, NotAnsweredError, ask, misplaced
from e2e.whatif.questions import ALL

ENOUGH = 0.9
"""Share of the questions whose answers must all be within 2 %: 18 of 20."""


def told(question: str, answers: Sequence[Answer]) -> bool:
    """Print the rows of a question; whether all are within the bound."""
    for answer in answers:
        verdict = "within" if answer.within else "OFF"
        print(f"{question:42} {answer.setting:42} {answer.real:9,} {answer.replayed:9,}  {verdict}", flush=True)
    for low, high in misplaced(answers):
        print(f"{question}: RANKED WRONGLY: {high} really reuses more than {low}", flush=True)
    return all(answer.within for answer in answers)


def passed(asked: int, within: int, ranked: int) -> bool:
    """Whether nine tenths of the questions are answered within the bound, and the settings of all ranked rightly."""
    return asked > 0 and within >= ENOUGH * asked and ranked == asked


def main() -> int:
    """Ask what was asked for."""
    known = {question.name: question for question in ALL}
    parser = argparse.ArgumentParser(prog="sh scripts/e2e whatif", description="What-if against a real llama-server.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"begin of any of: {', '.join(known)}; all without")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and bodies in FOLDER, a new one")
    a = parser.parse_args()
    chosen = [question for name, question in known.items() if not a.names or name.startswith(tuple(a.names))]
    if not chosen or any(not any(name.startswith(one) for name in known) for one in a.names):
        parser.error(f"no such question; there are {', '.join(known)}")
    # As with Ctrl-C: leave by an exception, so that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"{'day':42} {'setting':42} {'reused':>9} {'replayed':>9}")
    within = ranked = settings = 0
    with tempfile.TemporaryDirectory(prefix="cachedoctor-whatif-") as scratch:
        for question in chosen:
            try:
                answers = ask(question, (a.keep or Path(scratch)).resolve() / question.name)
            except (NotAnsweredError, ServerDiedError, OSError) as wrong:
                print(f"{question.name:42} FAILED: {wrong}", flush=True)
                continue
            within += told(question.name, answers)
            ranked += not misplaced(answers)
            settings += len(answers)
    print(f"{within} of {len(chosen)} questions within 2 %, ranked rightly in {ranked}; {settings} settings in all")
    return 0 if passed(len(chosen), within, ranked) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
