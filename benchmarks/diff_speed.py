"""Measure the edit script between two prompts of 250,000 tokens against difflib, git and wdiff, on the same files.

usage: diff_speed.py [--tokens 250000] [--limit 25] [--case CASE ...]

Text like prose is generated for each case (words by Zipf's law, over 1 MB), and every tool compares the two files as a
process of its own, start-up and reading included. Numbers are seconds of processor time: they hold on a machine that
does other work too. "script" is the edit script alone, without reading and splitting; "MB" is the largest resident size
of the whole process of ours. A ratio says how many times as long as ours a tool took; one that was stopped at the limit
took longer than the ratio says. wdiff runs if it is installed. difflib gets the same tokens and is asked for opcodes.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

WORDS_PER_LINE = 12
VOCABULARY = 20_000
TOKEN = re.compile(r"\s?\S+|\s")

Words = list[str]


def prose(n: int, seed: int) -> Words:
    """Words as often as in prose, none of them shorter than four letters, so that few tokens make much text."""
    names = random.Random(0)
    words = ["".join(names.choices("etaoinshrdlu", k=names.randint(4, 9))) for _ in range(VOCABULARY)]
    return random.Random(seed).choices(words, [1 / (rank + 3) for rank in range(VOCABULARY)], k=n)


def scattered(words: Words) -> Words:
    dice = random.Random(5)
    return [f"edit{dice.randrange(10_000)}" if dice.random() < 0.01 else word for word in words]


CASES: dict[str, Callable[[Words], Words]] = {
    "edit near the front": lambda a: [*a[:20], "another", *a[21:]],
    "200 inserted in the middle": lambda a: [*a[: len(a) // 2], *prose(200, 2), *a[len(a) // 2 :]],
    "1 % scattered": scattered,
    "unrelated after 10 %": lambda a: [*a[: len(a) // 10], *prose(len(a) - len(a) // 10, 3)],
    "first quarter dropped": lambda a: a[len(a) // 4 :],
}


def write(words: Words, path: Path) -> None:
    """Lines, because git aligns lines before words. Where they break depends on the words, as in a paragraph."""
    lines, line = [], []
    for word in words:
        line.append(word)
        if len(line) >= WORDS_PER_LINE or word.endswith("e"):
            lines.append(" ".join(line))
            line = []
    path.write_text("\n".join([*lines, " ".join(line)]) + "\n", encoding="utf-8")


def run_ours(a: Words, b: Words) -> str:
    from cachedoctor.prompts.align.align import apply, edit_script, summary

    began = time.process_time()
    edits = edit_script(a, b)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    if apply(a, edits, b) != b:
        raise SystemExit("the script does not give B")
    found = summary(edits)
    return f"{seconds:.3f} {peak:.0f} {found.pattern},{found.places:,}"


def run_difflib(a: Words, b: Words) -> str:
    import difflib

    return str(len(difflib.SequenceMatcher(None, a, b).get_opcodes()))


def child(tool: str, names: list[str]) -> None:
    """What a process of ours does: read, split, compare."""
    a, b = (TOKEN.findall(Path(name).read_text(encoding="utf-8")) for name in names)
    print(run_ours(a, b) if tool == "ours" else run_difflib(a, b))


def measure(command: list[str], limit: float) -> tuple[float | None, str]:
    """(seconds of processor time or None if it was stopped, what it printed)."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        running = subprocess.Popen(command, stdout=out)
        alarm = threading.Timer(limit, running.kill)
        alarm.start()
        _, status, usage = os.wait4(running.pid, 0)
        alarm.cancel()
        running.returncode = os.waitstatus_to_exitcode(status)
        if running.returncode == -signal.SIGKILL:
            return None, ""
        if running.returncode not in (0, 1):
            raise SystemExit(f"exit status {running.returncode}: {' '.join(command)}")
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, out.read(200)


def commands(a: Path, b: Path) -> dict[str, list[str] | None]:
    """What is measured beside ours; None where it is not installed."""
    git, wdiff = shutil.which("git"), shutil.which("wdiff")
    return {
        "difflib": [sys.executable, __file__, "--child", "difflib", str(a), str(b)],
        "git": [git, "diff", "--no-index", "--word-diff=porcelain", str(a), str(b)] if git else None,
        "wdiff": [wdiff, str(a), str(b)] if wdiff else None,
    }


def row(case: str, a: Path, b: Path, limit: float) -> str:
    """A line of the table."""
    seconds, printed = measure([sys.executable, __file__, "--child", "ours", str(a), str(b)], limit)
    if seconds is None:
        raise SystemExit(f"{case}: ours took more than {limit} s")
    script, peak, found = printed.split()
    cells = f"{case:27}{float(script):>8.2f}{seconds:>8.2f}{peak:>6}"
    for command in commands(a, b).values():
        if command is None:
            cells += f"{'n/a':>9}{'':>8}"
            continue
        theirs, _ = measure(command, limit)
        shown, mark = (f"> {limit:g}", ">") if theirs is None else (f"{theirs:.2f}", "")
        cells += f"{shown:>9}{mark + format((theirs or limit) / seconds, '.1f') + 'x':>8}"
    return f"{cells}  {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=250_000)
    parser.add_argument("--limit", type=float, default=25, help="seconds after which a tool is stopped")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return 0
    words = prose(options.tokens, 1)
    with tempfile.TemporaryDirectory(prefix="cachedoctor-diff-") as scratch:
        a, b = Path(scratch, "a.txt"), Path(scratch, "b.txt")
        write(words, a)
        print(f"{options.tokens:,} tokens, {a.stat().st_size / 1e6:.2f} MB of text; seconds of processor time")
        titles = "".join(f"{name:>9}{'ratio':>8}" for name in commands(a, b))
        print(f"{'case':27}{'script':>8}{'ours':>8}{'MB':>6}{titles}  found, places")
        for case in options.case:
            write(CASES[case](words), b)
            print(row(case, a, b, options.limit), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
