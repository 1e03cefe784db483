"""``python -m fuzz [TARGET] [SECONDS]``: long runs, guided by coverage.

``--random=SEED`` changes seeds at random for so many seconds of CPU time instead, which needs no atheris.

Every target runs in a process of its own, because libFuzzer ends its process. What it learnt (the corpus) and what
failed stay in ``.fuzz/TARGET/``; ``python -m fuzz TARGET FILE`` runs one of these inputs again, with a traceback.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".fuzz"
SECONDS = 60
_INPUT_SECONDS = 20
"""An input that takes longer has failed: most take milliseconds."""
_MEMORY_MIB = 2048


def _fuzz(name: str, seconds: int) -> None:
    """Run one target in this process, which ends here."""
    import atheris

    with atheris.instrument_imports(include=["cachedoctor"]):
        from fuzz.targets import TARGETS
    target, folder = TARGETS[name], FOLDER / name
    seeds = folder / "seeds"
    for path in (seeds, folder / "corpus"):
        path.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (seeds / f"{number:04}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}", f"-timeout={_INPUT_SECONDS}", f"-rss_limit_mb={_MEMORY_MIB}", "-max_len=65536",
        f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=1",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus"), str(seeds)], target.check)
    atheris.Fuzz()


def _at_random(names: list[str], seconds: int, seed: int) -> int:
    """Run targets in this process, without atheris; gives the number of those that failed."""
    from fuzz.targets import TARGETS, mutated

    failed = []
    for name in names:
        rng, target, runs, end = random.Random(seed), TARGETS[name], 0, time.process_time() + seconds
        pool = target.seeds()
        while time.process_time() < end:
            data = mutated(rng, pool)
            runs += 1
            try:
                target.check(data)
            except Exception:
                path = FOLDER / name / f"random-{seed}-{runs}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                print("\n".join([str(path), *traceback.format_exc().splitlines()[-12:]]), flush=True)
                failed.append(name)
        print(f"{name:10} {runs:>9} inputs  {'FAILED' if name in failed else 'ok'}", flush=True)
    return len(failed)


def _all(names: list[str], seconds: int) -> int:
    """Run targets one after the other; gives the number of those that failed."""
    failed = []
    for name in names:
        done = subprocess.run(
            [sys.executable, "-m", "fuzz", name, str(seconds), "--here"],
            check=False,
            stderr=subprocess.STDOUT,
            stdout=subprocess.PIPE,
        )
        said = done.stdout.decode("utf-8", "replace").splitlines()
        runs = next((line.split()[-1] for line in said if "number_of_executed_units" in line), "?")
        print(f"{name:10} {runs:>9} inputs  {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode:
            failed.append(name)
            print("\n".join(said[-40:]), flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}; the inputs are in {FOLDER.name}/", file=sys.stderr)
    return len(failed)


def main() -> int:
    """Read the arguments; the status is that of the worst target."""
    words = sys.argv[1:]
    if words[2:] == ["--here"]:  # before anything of the package is imported, for that is when it is instrumented
        _fuzz(words[0], int(words[1]))
    from fuzz.targets import TARGETS

    seeds = [int(word.removeprefix("--random=")) for word in words if re.fullmatch(r"--random=\d{1,9}", word)]
    words = [word for word in words if not word.startswith("--random=")]
    names = [word for word in words if word in TARGETS]
    numbers = [word for word in words if word.isdigit()]
    inputs = [word for word in words if Path(word).is_file()]
    if len(names) + len(numbers) + len(inputs) != len(words) or len(numbers) > 1 or (inputs and len(names) != 1):
        print(f"usage: fuzz [TARGET] [SECONDS] [--random=SEED]; targets are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    for path in inputs:
        TARGETS[names[0]].check(Path(path).read_bytes())
    seconds = int(numbers[0]) if numbers else SECONDS
    if seeds:
        return min(1, _at_random(names or list(TARGETS), seconds, seeds[0]))
    return 0 if inputs else min(1, _all(names or list(TARGETS), seconds))


if __name__ == "__main__":
    sys.exit(main())
