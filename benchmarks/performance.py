"""Measure all that matters of cachedoctor and print one table, with ratios against what ran in the same minutes.

usage: benchmarks/run [PART ...] [--size 200M] [--era ERA ...] [--rounds 2] [--quick] [--markdown] [--keep DIR]
                      [--against DIR]

throughput  every era of gen_log.py, JSON and text, one process and two, beside mawk, rg, perline.py, lnav, GoAccess
memory      the peak at 1/20 of the size, at five times the size, and at a pipe of fifty times the size
live        from a written line to its finding, and an idle follower, beside tail -F | grep (live.py)
rotations   requests that a follower loses while its log is rotated in storms (rotations.py)
linear      growth of time and memory with bytes, requests, slots, checkpoints and lives of a server
startup     --version and a small log, beside python -c pass; with --against DIR beside a checkout of another commit
hostile     the worst ratio of every suite of hostile.py
forged      prompts that hold lines of a log: how many change the report (forged.py)

Without PART all of them, in this order. "wall s" and "CPU s" (user and system, all processes of the row) are the least
of the rounds, "peak MB" the largest resident process of them. MB are 1,000,000 bytes. ``--quick`` is 20M and one round,
fewer live findings, no pipe and not the longest hostile suite. A ratio above its limit is marked with "!", and the exit
status is 1. benchmarks/README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import table
from gen_log import ERAS, size_of
from plan import Plan
from process import FailedError

import cachedoctor

PARTS = ("throughput", "memory", "live", "rotations", "linear", "startup", "hostile", "forged")
"""Modules with ``rows(plan)``. The last analyses in this process, whose memory its children count as theirs."""
SIZE, QUICK_SIZE = "200M", "20M"
ROUNDS, QUICK_ROUNDS = 2, 1


def rows(parts: list[str], plan: Plan) -> Iterator[table.Row]:
    """The rows of all parts, in the order of ``PARTS``."""
    for part in PARTS:
        if part in parts:
            yield from importlib.import_module(part).rows(plan)


def surroundings(plan: Plan) -> str:
    """What the numbers depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{platform.system()}, {os.cpu_count()} cores ({model})"
    return f"cachedoctor {cachedoctor.__version__}, {python}, {machine}; {plan.size / 1e6:,g} MB, best of {plan.rounds}"


def arguments(given: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the parts that are wanted."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--size", metavar="BYTES", help=f"{SIZE}; with --quick {QUICK_SIZE}")
    parser.add_argument("--era", nargs="+", choices=ERAS, default=list(ERAS))
    parser.add_argument("--rounds", type=int, metavar="N", help=f"{ROUNDS}; with --quick {QUICK_ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a minute")
    parser.add_argument("--markdown", action="store_true", help="a table for benchmarks/README.md")
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of another commit, for startup")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the logs there, keep them and use them again")
    options = parser.parse_args(given)
    if unknown := set(options.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        options.size = size_of(options.size or (QUICK_SIZE if options.quick else SIZE))
    except (ValueError, KeyError):
        parser.error(f"--size {options.size}: write bytes as 200M or 1.5G")
    options.rounds = (QUICK_ROUNDS if options.quick else ROUNDS) if options.rounds is None else options.rounds
    if options.rounds < 1 or options.size < 1:
        parser.error("--rounds and --size begin at 1")
    return options, options.part or list(PARTS)


def main(given: list[str] | None = None) -> int:
    options, parts = arguments(given)
    line = table.markdown if options.markdown else table.plain
    marked = 0
    with tempfile.TemporaryDirectory(prefix="cachedoctor-benchmark-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(options.size, options.era, options.rounds, options.quick, folder, options.keep is not None)
        plan = plan._replace(against=options.against)
        print(table.head(options.markdown), flush=True)
        try:
            for row in rows(parts, plan):
                marked += row.is_marked
                print(line(row.cells()), flush=True)
        except FailedError as error:
            print(f"benchmarks/run: {error}", file=sys.stderr)
            return 2
    print(f"\n{surroundings(plan)}")
    if marked:
        print(f"{marked} above their limit, marked with {table.MARK}", file=sys.stderr)
    return 1 if marked else 0


if __name__ == "__main__":
    sys.exit(main())
