"""Time, processor time and memory of ``cachedoctor fleet`` over many logs, by engine; tables of all must be the same.

usage: fleet.py LOGS OUT [--engine local --engine ray ...] [--jobs 2] [--kill]

LOGS is a folder of logs, OUT one for the results. Needs the environment of sh scripts/e2e fleet. Processor time is that
of all processes of a run, as long as they were seen (twice a second); memory that of processes which read. With
``--kill`` one of these is killed in the middle of a further run with the last engine.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from e2e.fleet.logs import MARK, Started, digests

TITLES = {"local": "spawn_main", "ray": "ray::", "dask": "spawn_main"}
EVERY = 0.5
"""Seconds between two looks."""
MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Looks at the processes of a run until it is stopped."""

    def __init__(self, mark: str, title: str) -> None:
        self._needle = f"{MARK}={mark}".encode()
        self._title = title
        self._strangers: set[int] = set()
        self.cpu: dict[int, float] = {}
        self.memory: defaultdict[int, list[int]] = defaultdict(list)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY):
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) not in self._strangers:
                    self._look(int(name))

    def _look(self, pid: int) -> None:
        place = Path("/proc") / str(pid)
        try:
            if self._needle not in (place / "environ").read_bytes().split(b"\0"):
                self._strangers.add(pid)
                return
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            self.cpu[pid] = (int(fields[11]) + int(fields[12])) / TICK
            if self._title in words and "resource_tracker" not in words:
                self.memory[pid].append(int((place / "statm").read_text().split()[1]) * PAGE)
        except (OSError, IndexError):
            return


def grown(samples: list[int]) -> dict[str, int]:
    """Memory of one process in MiB: in the middle of its first and of its last fifth, and the most."""
    fifth = max(1, len(samples) // 5)
    early, late = sorted(samples[fifth : 2 * fifth] or samples), sorted(samples[-fifth:])
    return {"early": early[len(early) // 2] // MIB, "late": late[len(late) // 2] // MIB, "most": max(samples) // MIB}


def measured(logs: Path, out: Path, engine: str, jobs: int, kill: bool) -> dict[str, object]:
    """Run the command once."""
    started = Started(logs, "-o", out, "-j", jobs, "--engine", engine)
    watch = Watch(started.mark, TITLES[engine])
    if kill:
        started.kill_one(TITLES[engine], out, 20)
    run = started.ended()
    watch.stop()
    found = [grown(samples) for samples in watch.memory.values() if len(samples) >= 10]
    return {
        "engine": engine, "status": run.status, "said": run.out.splitlines()[:1], "error": run.error[:300],
        "wall_s": round(run.seconds, 1), "cpu_s": round(sum(watch.cpu.values()), 1), "readers_mib": found,
    }  # fmt: skip


def main() -> None:
    """Run all engines that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("logs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--engine", action="append", choices=tuple(TITLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    engines = asked.engine or ["local"]
    tables = []
    for number, (engine, kill) in enumerate(
        [*((name, False) for name in engines), *[(engines[-1], True)] * asked.kill]
    ):
        place = asked.out / f"{engine}-{number}"
        began = time.strftime("%H:%M:%S")
        print(json.dumps({"began": began, "killed": kill, **measured(asked.logs, place, engine, asked.jobs, kill)}))
        sys.stdout.flush()
        tables.append(digests(place))
    print(json.dumps({"files": len(tables[0]), "same": all(found == tables[0] for found in tables)}))


if __name__ == "__main__":
    main()
