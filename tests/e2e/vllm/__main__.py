"""Runs scenarios by name, all of them without one. Exit status 1 when one fails, 2 for a name that is none."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.case import NotAsClaimedError
from e2e.server import ServerDiedError
from e2e.vllm import days, kv_events, probed, scenarios, whatif
from e2e.vllm.check import BESIDE, analyze, title, unmet
from e2e.vllm.scenario import FaultNotMadeError, Scenario, made, record, shares
from e2e.whatif.__main__ import told
from e2e.whatif.asked import NotAnsweredError, misplaced


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
        report = analyze(folder, tuple(BESIDE) if scenario.told else ("metrics", "responses"))
        said = [f"{title(f)} ({f['severity']}, {f['confidence']})" for f in report["findings"]]
        print(f"  cachedoctor: {', '.join(said) or 'no finding'}", flush=True)
        faults = unmet(scenario, told, report)
    except (FaultNotMadeError, NotAsClaimedError, ServerDiedError, OSError) as wrong:
        faults = [str(wrong)]
    for fault in faults:
        print(f"  FAILED: {fault}", flush=True)
    print(f"  {time.monotonic() - started:.1f} s", flush=True)
    return not faults


def played(day: days.Day, folder: Path, recorded: bool) -> bool:
    """Play a day, unless that was done before, and print what cachedoctor says of it with each source."""
    started, wrong = time.monotonic(), []
    print(f"{day.name}: {day.finding or 'nothing above a note'}", flush=True)
    try:
        if not recorded:
            record(day, folder, days.options(day, folder))
        cached, prompt = shares(made(day, folder))
        print(f"  vLLM: {cached} of {prompt} prompt tokens cached", flush=True)
        for given, report in days.reports(day, folder).items():
            said = [f"{title(f)} ({f['severity']}, {f['confidence']})" for f in report["findings"]]
            print(f"  {given}: {', '.join(said) or 'no finding'}", flush=True)
            wrong += [f"{given}: {fault}" for fault in days.faults(day, days.SOURCES[given], report)]
    except (FaultNotMadeError, NotAsClaimedError, ServerDiedError, OSError) as error:
        wrong.append(str(error))
    for fault in wrong:
        print(f"  FAILED: {fault}", flush=True)
    print(f"  {time.monotonic() - started:.1f} s", flush=True)
    return not wrong


def answered(questions: Sequence[whatif.Question], root: Path) -> int:
    """Ask what-if questions and print what was reused, really and by the replay."""
    within = ranked = settings = 0
    for question in questions:
        try:
            answers = whatif.ask(question, root / question.name)
        except (FaultNotMadeError, NotAnsweredError, ServerDiedError, OSError) as wrong:
            print(f"{question.name}: FAILED: {wrong}", flush=True)
            continue
        within += told(question.name, answers)
        ranked += not misplaced(answers)
        settings += len(answers)
    print(f"{within} of {len(questions)} questions within 2 %, ranked rightly in {ranked}; {settings} settings in all")
    return 0 if within == ranked == len(questions) else 1


def main() -> int:
    """Run what was asked for."""
    known: dict[str, Any] = {one.name: one for one in (whatif.ALL if "--whatif" in sys.argv else scenarios.ALL)}
    known = probed.SERVERS if "--probe" in sys.argv else known
    known = {day.name: day for day in days.ALL} if "--days" in sys.argv else known
    parser = argparse.ArgumentParser(prog="sh scripts/e2e vllm", description="Faults on a real vLLM, and their names.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(known)}")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", metavar="FOLDER", type=Path, help="leave logs, metrics and responses there")
    where.add_argument("--check", metavar="FOLDER", type=Path, help="start nothing: read what --keep left there")
    parser.add_argument("--whatif", action="store_true", help="answers of simulate, then a real vLLM with the setting")
    parser.add_argument("--kv-events", action="store_true", help="record KV events, and hold them against the server")
    parser.add_argument("--probe", action="store_true", help="cachedoctor probe, on healthy servers and faulty ones")
    parser.add_argument("--days", action="store_true", help="days with two clients, analysed with bodies and without")
    asked = parser.parse_args()
    names = asked.names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    if asked.keep and (there := [name for name in names if (asked.keep / name).exists()]):
        parser.error(f"{asked.keep} has {', '.join(there)} already")
    # As with Ctrl-C: leave by an exception, so that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if (asked.whatif or asked.kv_events or asked.probe) and asked.check:
        parser.error("--whatif, --kv-events and --probe start servers: they have nothing to check without them")
    with tempfile.TemporaryDirectory(prefix="cachedoctor-e2e-") as folder:
        root = (asked.keep or asked.check or Path(folder)).absolute()
        if asked.kv_events:
            faults = kv_events.run(root / "kv-events")
            print("\n".join(f"FAILED: {fault}" for fault in faults) or "the events say what the server did")
            return 1 if faults else 0
        if asked.probe:
            return 1 if probed.run(root, names) else 0
        if asked.whatif:
            return answered([known[name] for name in names], root)
        run = played if asked.days else passes
        failed = [name for name in names if not run(known[name], root / name, bool(asked.check))]
    print(f"{len(names) - len(failed)} of {len(names)} {'days' if asked.days else 'scenarios'} as they should be")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
