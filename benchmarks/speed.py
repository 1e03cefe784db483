"""Measure how fast and in how much memory a big log is analysed, against mawk counting four patterns in the same file.

usage: speed.py [--size 200M] [--era ERA ...] [--format json text] [--keep DIR] [--rounds 2]

For each era a log is generated (gen_log.py), read once so that it is cached, then timed: the command
``cachedoctor analyze LOG --format F -o /dev/null`` as a process of its own, start-up included, and mawk; the best of
the rounds counts. "CPU MB/s" divides by processor time: the number to read on a machine that does other work too.
Memory is the largest resident size of the process. MB are 1,000,000 bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gen_log import ERAS, size_of

MAWK = (
    "/memory_seq_rm/{a++} /forcing full/{b++} /restored context checkpoint/{c++} /prompt eval time/{d++}"
    " END{print a,b,c,d}"
)
API = (
    "import sys, cachedoctor; from cachedoctor.report.json_v1 import render;"
    " render(cachedoctor.analyze(sys.argv[1]), open('/dev/null', 'wb'))"
)


def generate(era: str, size: str, folder: Path) -> Path:
    """Log of an era; one that exists with at least this size is used again."""
    log = folder / f"{era}-{size}.log"
    if not log.exists() or log.stat().st_size < size_of(size):
        with log.open("wb") as out:
            generator = Path(__file__).parent / "gen_log.py"
            subprocess.run([sys.executable, str(generator), "--era", era, "--size", size], stdout=out, check=True)
    return log


def count_requests(log: Path) -> int:
    """Requests in the log; reading it also brings it into the page cache."""
    wanted, total, rest = b"| processing task", 0, b""
    with log.open("rb") as file:
        while block := file.read(1 << 22):
            block = rest + block
            total += block.count(wanted)
            rest = block[-(len(wanted) - 1) :]
    return total


def measure(command: list[str], rounds: int) -> tuple[float, float, float]:
    """(seconds, seconds of processor time, MB of resident memory): the least of ``rounds``, memory the most."""
    best, cpu, peak = float("inf"), float("inf"), 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"exit status {child.returncode}: {' '.join(command)}")
        best, cpu = min(best, seconds), min(cpu, usage.ru_utime + usage.ru_stime)
        peak = max(peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6)
    return best, cpu, peak


def command_for(log: Path, form: str, api: bool) -> list[str]:
    """The command to time."""
    if api:
        return [sys.executable, "-c", API, str(log)]
    beside = Path(sys.executable).parent / "cachedoctor"
    start = [str(beside)] if beside.exists() else [sys.executable, "-m", "cachedoctor"]
    return [*start, "analyze", str(log), "--format", form, "-o", os.devnull]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="200M")
    parser.add_argument("--era", nargs="+", choices=ERAS, default=list(ERAS))
    parser.add_argument("--format", nargs="+", default=["json", "text"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs there and use them again")
    parser.add_argument("--api", action="store_true", help="time analyze() and the JSON renderer, not the command")
    a = parser.parse_args()
    mawk = shutil.which("mawk")
    if mawk is None:
        print("mawk is not installed: its columns stay empty", file=sys.stderr)
    columns = ("MB", "MB/s", "CPU MB/s", "mawk MB/s", "ratio", "peak MB", "requests", "requests/s")
    print(f"{'era':15} {'format':7}" + "".join(f"{c:>11}" for c in columns))
    with tempfile.TemporaryDirectory(prefix="cachedoctor-speed-") as scratch:
        folder = a.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for era in a.era:
            log = generate(era, a.size, folder)
            megabytes, requests = log.stat().st_size / 1e6, count_requests(log)
            theirs = megabytes / measure([mawk, MAWK, str(log)], a.rounds)[0] if mawk else None
            for form in ["json"] if a.api else a.format:
                seconds, cpu, peak = measure(command_for(log, form, a.api), a.rounds)
                speed = megabytes / seconds
                cells = [f"{megabytes:.0f}", f"{speed:.1f}", f"{megabytes / cpu:.1f}"]
                cells += [f"{theirs:.1f}", f"{speed / theirs:.3f}"] if theirs else ["-", "-"]
                cells += [f"{peak:.0f}", f"{requests:,}", f"{requests / seconds:,.0f}"]
                print(f"{era:15} {form:7}" + "".join(f"{c:>11}" for c in cells), flush=True)
            if a.keep is None:
                log.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
