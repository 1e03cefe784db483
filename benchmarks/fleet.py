"""Time, processor time and memory of ``cachedoctor fleet`` over many logs, by engine; tables of all must be the same.

usage: fleet.py LOGS OUT [--engine local --engine ray ...] [--jobs 2] [--no-reports] [--kill] [--after 20]

LOGS is a folder of logs, OUT one for the results. Needs the environment of sh scripts/e2e fleet. Processor time is that
of all processes of a run, as long as they were seen (twice a second); memory that of processes which read. With
``--kill`` one of these is killed in the run with the last engine, when ``--after`` logs are done.
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

TITLES = {"local": "spawn_main", "ray": "ray::"}
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
        self.program: dict[int, str] = {}
        self.memory: defaultdict[int, list[int]] = defaultdict(list)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
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
            self.program[pid] = program(words, self._title)
            if self._title in words and "resource_tracker" not in words:
                self.memory[pid].append(int((place / "statm").read_text().split()[1]) * PAGE)
        except (OSError, IndexError):
            return


def program(words: str, reader: str) -> str:
    """Name what a process is, by its command line: one that reads, a part of the cluster, or the command itself."""
    if reader in words or "resource_tracker" in words:
        return "readers"
    if "-m cachedoctor" in words:
        return "command"
    found = [Path(word).name for word in words.split() if "/ray/" in word or "distributed" in word]
    return found[0] if found else (words.split() or ["?"])[0][:24]


def sums(watch: Watch) -> dict[str, float]:
    """Processor time by program."""
    found: defaultdict[str, float] = defaultdict(float)
    for pid, seconds in watch.cpu.items():
        found[watch.program[pid]] += seconds
    return {name: round(seconds, 1) for name, seconds in sorted(found.items(), key=lambda one: -one[1])}


def grown(samples: list[int]) -> dict[str, int]:
    """Memory of one process in MiB: in the middle of its first and of its last fifth, and the most."""
    fifth = max(1, len(samples) // 5)
    early, late = sorted(samples[fifth : 2 * fifth] or samples), sorted(samples[-fifth:])
    return {"early": early[len(early) // 2] // MIB, "late": late[len(late) // 2] // MIB, "most": max(samples) // MIB}


def measured(logs: Path, out: Path, engine: str, asked: argparse.Namespace, kill: bool) -> dict[str, object]:
    """Run the command once."""
    more = ["--no-reports"] * asked.no_reports
    started = Started(logs, "-o", out, "-j", asked.jobs, "--engine", engine, *more)
    watch = Watch(started.mark, TITLES[engine])
    if kill:
        started.kill_one(TITLES[engine], out, asked.after, 4 * 3600)
    run = started.ended()
    watch.stop()
    found = [grown(samples) for samples in watch.memory.values() if len(samples) >= 10]
    return {
        "engine": engine, "status": run.status, "said": run.out.splitlines()[:1], "error": run.error[:300],
        "wall_s": round(run.seconds, 1), "cpu_s": round(sum(watch.cpu.values()), 1), "cpu_by": sums(watch),
        "readers_mib": found,
    }  # fmt: skip


def main() -> None:
    """Run all engines that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("logs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--engine", action="append", choices=tuple(TITLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-reports", action="store_true")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--after", type=int, default=20)
    asked = parser.parse_args()
    engines = asked.engine or ["local"]
    tables = []
    for number, engine in enumerate(engines):
        place, kill = asked.out / f"{engine}-{number}", asked.kill and number == len(engines) - 1
        began = time.strftime("%H:%M:%S")
        print(json.dumps({"began": began, "killed": kill, **measured(asked.logs, place, engine, asked, kill)}))
        sys.stdout.flush()
        tables.append(digests(place))
    print(json.dumps({"files": len(tables[0]), "same": all(found == tables[0] for found in tables)}))


if __name__ == "__main__":
    main()
