"""Measure how the time grows with inputs made to cost time: four times the input, about four times the time.

usage: hostile.py [SUITE ...]

Each input of tests/hostile_inputs.py (and of tests/patterns.py, against every compiled pattern) is processed at size
n and at size 4n in this process. Seconds are processor time, the best of three rounds, each of as many repetitions as
fill 20 ms at size n. A ratio of 4 is linear, 16 quadratic. Exits 1, and names the inputs, when a ratio is above 8.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import hostile_inputs as made
import patterns
from plan import Plan
from table import Row

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.inputs.envelope import Unwrapper
from cachedoctor.inputs.metrics import dumps, responses
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs
from cachedoctor.prompts.align.align import edit_script
from cachedoctor.prompts.conversations import common_prefix, walk
from cachedoctor.prompts.difference_advice import recognise
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.request_bodies import kind_of, prompts_of
from cachedoctor.redaction.secrets import hidden

ROUNDS = 3
LEAST_SECONDS = 0.02
"""Shorter times are noise."""
GROWTH = 4
WORST = 8.0
"""Ratio of the times at ``GROWTH`` times the size: 4 is linear, and logarithms and caches take their share."""

Work = Callable[[], object]
Case = tuple[str, int, Callable[[int], Work]]
"""Name, size, and what makes the work of a size; the making is not timed."""


def recognise_all(pairs: list[tuple[Prompt, Prompt]]) -> None:
    for a, b in pairs:
        recognise(a, b, common_prefix(a.text, b.text))


def repetition(piece: str, n: int) -> Work:
    pairs = [(Prompt("a", "text", a), Prompt("b", "text", b)) for a, b in made.prompts(piece, n)]
    return partial(recognise_all, pairs)


def prompt_of(body: made.Body) -> Prompt:
    kind = kind_of(body)
    if kind is None:
        raise SystemExit("a body of the tests is not recognised as one")
    return prompts_of(body, kind, "x")[0]


def history(index: int, n: int) -> Work:
    _, a, b = made.histories(n)[index]
    return partial(recognise_all, [(prompt_of(a), prompt_of(b))])


def parse(data: bytes) -> None:
    try:
        inputs.parse(data, "f")
    except CacheDoctorError:
        pass  # some are not prompts, and this is the answer


def chats(n: int) -> Work:
    return partial(walk, [prompt_of(body) for body in made.growing_chats(n)])


def sequences(name: str, n: int) -> Work:
    return partial(edit_script, *made.SEQUENCES[name](n))


def unwrap(lines: list[bytes]) -> None:
    for line in lines:
        unwrapper = Unwrapper()
        unwrapper.feed(line, 1)
        unwrapper.flush()


def wrapped(unit: bytes, n: int) -> Work:
    return partial(unwrap, [lead + unit * n + b"\n" for lead in made.LEADS])


def analyze(lines: list[bytes]) -> None:
    for line in lines:
        analyzer = Analyzer()
        analyzer.open("server.log")
        analyzer.feed(line)
        analyzer.finish()


def logged(unit: bytes, n: int) -> Work:
    return partial(analyze, [head + unit * n + b"\n" for head in made.HEADS])


def attacked(find: Callable[[str | bytes], object], pattern: re.Pattern[Any], n: int) -> Work:
    made = [attack.text(n) for attack in patterns.attacks(pattern)]
    return lambda: [find(text) for text in made]


def redact(lines: list[bytes]) -> None:
    redactor = Redactor()
    for line in lines:
        redactor.feed(line)
    redactor.finish()


def redacted(unit: bytes, n: int) -> Work:
    return partial(redact, [start + unit * n + b"\n" for start in (*made.HEADS, *made.LEADS)])


def hide(piece: str, n: int) -> Work:
    return partial(hidden, piece * (n // len(piece)))


def answer(read: Callable[[list[bytes], str], object], data: bytes) -> None:
    try:
        read([data[at : at + 65_536] for at in range(0, len(data), 65_536)], "f")
    except CacheDoctorError:
        pass


def repeated(read: Callable[[list[bytes], str], object], head: bytes, unit: bytes, n: int) -> Work:
    return partial(answer, read, head + unit * n)


def texts() -> Iterator[Case]:
    for piece in made.PIECES:
        yield repr(piece), 50_000, partial(repetition, piece)


def bodies() -> Iterator[Case]:
    for index, (kind, _, _) in enumerate(made.histories(10)):
        yield f"{kind} ({index})", 2_000, partial(history, index)


def files() -> Iterator[Case]:
    deep, end = made.TOO_DEEP
    yield "brackets", 2_000_000, lambda n: partial(parse, (deep * n + end).encode())
    yield "one long body", 10_000, lambda n: partial(parse, made.one_long_body(n))
    yield "many bodies", 10_000, lambda n: partial(parse, made.many_bodies(n))


def conversations() -> Iterator[Case]:
    yield "growing chats", 400, chats


def scripts() -> Iterator[Case]:
    for name in made.SEQUENCES:
        yield name, 20_000, partial(sequences, name)


def wrappers() -> Iterator[Case]:
    for unit in made.UNITS:
        yield repr(unit), 50_000, partial(wrapped, unit)


def log_lines() -> Iterator[Case]:
    for unit in made.UNITS:
        yield repr(unit), 2_000, partial(logged, unit)


def all_patterns() -> Iterator[Case]:
    for name, pattern in patterns.compiled().items():
        find = pattern.search if patterns.searched(name) else pattern.match
        yield name, 1_000, partial(attacked, find, pattern)


def redactions() -> Iterator[Case]:
    for unit in made.UNITS:
        yield repr(unit), 50_000, partial(redacted, unit)


def quotes() -> Iterator[Case]:
    for piece in made.SECRETS:
        yield repr(piece), 50_000, partial(hide, piece)


def counters() -> Iterator[Case]:
    for head, unit in made.DUMPS:
        yield repr(head + unit), 10_000, partial(repeated, dumps.servers, head, unit)


def answers() -> Iterator[Case]:
    for head, unit in made.ANSWERS:
        yield repr(head + unit), 10_000, partial(repeated, responses.read, head, unit)


SUITES = {
    "texts": texts,
    "bodies": bodies,
    "files": files,
    "conversations": conversations,
    "scripts": scripts,
    "wrappers": wrappers,
    "lines": log_lines,
    "patterns": all_patterns,
    "redact": redactions,
    "quotes": quotes,
    "dumps": counters,
    "responses": answers,
}


LONGEST = "patterns"
"""The suite that takes more than a minute."""


def once(work: Work, times: int) -> float:
    """Seconds of processor time of one of ``times`` repetitions."""
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def measure(make: Callable[[int], Work], n: int) -> tuple[float, float]:
    """Seconds at ``n`` and at ``GROWTH * n``, each the best of the rounds, taken in turns."""
    small, big = make(n), make(GROWTH * n)
    times = max(1, int(LEAST_SECONDS / max(once(small, 1), 1e-6)))
    rounds = [(once(small, times), once(big, times)) for _ in range(ROUNDS)]
    return min(r[0] for r in rounds), min(r[1] for r in rounds)


def ratios(suite: str) -> Iterator[tuple[str, int, float, float]]:
    """Of every input of a suite its name, its size n, and the seconds at n and at ``GROWTH * n``."""
    for name, n, make in SUITES[suite]():
        yield name, n, *measure(make, n)


def rows(plan: Plan) -> Iterator[Row]:
    """The worst input of every suite as a row of the table of all measurements."""
    for suite in SUITES:
        if plan.is_quick and suite == LONGEST:
            continue
        found = list(ratios(suite))
        name, n, small, big = max(found, key=lambda one: one[3] / one[2])
        case = f"{suite}, {len(found)} inputs; worst: {name if len(name) < 20 else name[:17] + '...'}"
        measured = f"n = {n:,}: {small * 1e3:.2f} ms, 4n: {big * 1e3:.2f} ms"
        yield Row("hostile", case, None, measured, big / small, f"times the time at {GROWTH} times the size", WORST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all of them by default")
    wanted = parser.parse_args().suite
    if unknown := set(wanted) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    print(f"{'suite':14} {'input':40} {'n':>8} {'ms':>9} {'ms at 4n':>9} {'ratio':>6}")
    worse = []
    for suite in wanted or SUITES:
        for name, n, small, big in ratios(suite):
            ratio = big / small
            print(f"{suite:14} {name:40} {n:8,} {small * 1e3:9.2f} {big * 1e3:9.2f} {ratio:6.1f}", flush=True)
            if ratio > WORST:
                worse.append(f"{suite} {name} ({ratio:.1f})")
    if worse:
        print("worse than linear: " + ", ".join(worse), file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
