"""Measure a live log: milliseconds from a written line to its finding on the terminal, and what an idle follower costs.

usage: live.py [--findings 120] [--idle 10] [--seed 1]

Each row is one way to read a growing log, or a peer from the shell that reads the same log in the same run. A latency
is the time from just before the write of the line that completes a request until the words of its finding (or, for
grep, the line) have been read from the other side of the pipe or pseudo-terminal. Pauses between lines are random, so
that no reader can fall in step with the writer. A "steady" log gets another line every 10 ms, so that it never falls
silent. Idle is the processor time of all processes of the row, over ``--idle`` seconds in which nothing is written, as
a share of one core (from /proc/PID/schedstat: Linux only). The first finding, which waits for the program to start, is
not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

from plan import Plan
from table import Row

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from command import FIRST, SECOND

OURS = f"{shlex.quote(sys.executable)} -m cachedoctor analyze --color never"
GREP = "tail -n +1 -F {log} | grep --line-buffered 'task 9 | stop processing'", b"stop processing"
PIPE = "tail -n +1 -F {log} | " + OURS + " -", b"explain CD101"
FOLLOW = OURS + " --follow {log}", b"explain CD101"
STREAM = "tail -n +1 -F {log} | " + OURS + " - -f jsonl", b'"code":"CD101"'
ROWS = [
    ("tail -F | grep (peer)", *GREP, "quiet"),
    ("tail -F | analyze -", *PIPE, "quiet"),
    ("analyze --follow", *FOLLOW, "quiet"),
    ("tail -F | ... -f jsonl", *STREAM, "quiet"),
    ("tail -F | analyze -", *PIPE, "steady"),
    ("analyze --follow", *FOLLOW, "steady"),
]
NOISE = b"0.00.841.591 I srv  update_slots: all slots are idle\n"
PATIENCE = 60.0
FINDINGS, IDLE, SEED = 120, 10.0, 1
QUICK = 8, 1.0
"""Findings and seconds of silence of a run of less than a minute."""
PROMPT = (0.05, 0.4)
"""Seconds that the last line of a request comes after the others, from and to."""


@contextlib.contextmanager
def started(command: str, pty: bool) -> Iterator[tuple[int, int]]:
    """The process group of a shell pipeline, and the file descriptor its output is read from."""
    ours, theirs = os.openpty() if pty else os.pipe()
    shell = subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield shell.pid, ours
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        os.close(ours)


def wait_for(fd: int, words: bytes) -> float:
    """Read until ``words`` came; gives the moment."""
    seen, end = b"", time.monotonic() + PATIENCE
    while words not in seen:
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            raise SystemExit(f"no {words!r} within {PATIENCE} s, but {seen[-500:]!r}")
        seen += os.read(fd, 65536)
    return time.monotonic()


def turns(number: int) -> tuple[bytes, bytes]:
    """Two requests to one server of a router, of which the second has a finding: all but the last line, the last."""
    lines = [f"[{50000 + number}] {line}" for line in (FIRST + SECOND).splitlines(keepends=True)]
    return "".join(lines[:-1]).encode(), lines[-1].encode()


def latencies(log: Path, fd: int, words: bytes, steady: bool, count: int, chance: random.Random) -> list[float]:
    """Milliseconds from a line to its finding, ``count`` times."""
    taken = []
    with log.open("ab", buffering=0) as file:
        for number in range(count + 1):
            before, last = turns(number)
            file.write(before)
            with noise(file, steady):
                time.sleep(chance.uniform(*PROMPT))
                began = time.monotonic()
                file.write(last)
                taken.append((wait_for(fd, words) - began) * 1000)
                time.sleep(chance.uniform(0, 0.1))
    return sorted(taken[1:])


@contextlib.contextmanager
def noise(file: IO[bytes], steady: bool) -> Iterator[None]:
    """Lines that say nothing, every 10 ms from a thread, while the block runs."""
    done = threading.Event()

    def write() -> None:
        while steady and not done.wait(0.01):
            file.write(NOISE)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def processor_time(group: int) -> float:
    """Seconds that the processes of a group have run so far."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end while we look
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int((folder / "schedstat").read_text().split()[0])
    return total / 1e9


def idle_share(group: int, seconds: float) -> float:
    """Percent of one core that the group takes while nothing happens."""
    time.sleep(1)
    before, began = processor_time(group), time.monotonic()
    time.sleep(seconds)
    return 100 * (processor_time(group) - before) / (time.monotonic() - began)


class Reading(NamedTuple):
    """What one reader of a growing log took."""

    name: str
    pace: str
    output: str
    ms: list[float]
    """From a line to its finding, sorted."""
    idle: float
    """Percent of one core."""

    def numbers(self) -> list[float]:
        """Least, median, 99th percentile and most of the milliseconds, and the idle share."""
        ms = self.ms
        return [ms[0], median(ms), ms[math.ceil(len(ms) * 0.99) - 1], ms[-1], self.idle]


def readings(findings: int, idle: float, seed: int) -> Iterator[Reading]:
    """Every reader, into a pipe and a pseudo-terminal, with ``findings`` each and ``idle`` seconds of silence."""
    for name, command, words, pace in ROWS:
        for output in ("pipe", "pty"):
            with tempfile.TemporaryDirectory(prefix="cachedoctor-live-") as folder:
                log = Path(folder) / "server.log"
                log.touch()
                with started(command.format(log=shlex.quote(str(log))), output == "pty") as (group, fd):
                    ms = latencies(log, fd, words, pace == "steady", findings, random.Random(seed))
                    yield Reading(name, pace, output, ms, idle_share(group, idle))


def rows(plan: Plan) -> Iterator[Row]:
    """The readers as rows of the table of all measurements, against the first of them."""
    peers: dict[str, float] = {}
    findings, idle = QUICK if plan.is_quick else (FINDINGS, IDLE)
    for reading in readings(findings, idle, SEED):
        least, middle, p99, most, share = reading.numbers()
        peer = peers.setdefault(reading.output, middle)
        measured = f"{least:.1f} / {middle:.1f} / {p99:.1f} / {most:.1f} ms, idle {share:.1f} %"
        case = f"{reading.name}, {reading.pace} log, {reading.output}"
        yield Row("live", case, None, measured, middle / peer, "times the median of tail -F | grep")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--findings", type=int, default=FINDINGS)
    parser.add_argument("--idle", type=float, default=IDLE, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=SEED)
    a = parser.parse_args()
    columns = ("min", "median", "p99", "max ms", "idle %")
    print(f"{'reader':24}{'log':8}{'output':8}" + "".join(f"{c:>9}" for c in columns))
    for r in readings(a.findings, a.idle, a.seed):
        print(f"{r.name:24}{r.pace:8}{r.output:8}" + "".join(f"{c:9.1f}" for c in r.numbers()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
