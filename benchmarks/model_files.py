"""Run `cachedoctor diff` with every hostile chat template and tokenizer of tests/hostile_model_files.py.

usage: model_files.py [NAME ...]

Each must end within 15 s and 500 MB (of the command and its child together, read from /proc 20 times a second), with an
answer or one line of error. Prints all of them, and exits 1 when one does not. Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import hostile_model_files as made

SECONDS, MIB = 15.0, 500
GIVE_UP = 120.0
"""Seconds."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int | None
    seconds: float
    mib: int
    error: str


def resident(pid: int) -> int:
    """KiB of a process and its children; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
    return own + sum(resident(int(child)) for child in children)


def measured(arguments: list[str]) -> Ended:
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "cachedoctor", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            most[0] = max(most[0], resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _, error = process.communicate(timeout=GIVE_UP)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        _, error = process.communicate()
        status = None
    done.set()
    watcher.join()
    return Ended(status, time.monotonic() - began, most[0] >> 10, error.decode("utf-8", "replace").rstrip("\n"))


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Name of each, and what writes its files and gives the arguments."""
    bodies = [folder / "a.json", folder / "b.json"]
    for body, text in zip(bodies, ("hello", "goodbye"), strict=True):
        body.write_text(json.dumps({"messages": [{"role": "user", "content": text}]}))
    texts = [folder / "a.txt", folder / "b.txt"]
    for path, end in zip(texts, ("x", "y"), strict=True):
        path.write_text(made.PROMPT + end)

    def diff(inputs: list[Path], option: str, path: str) -> list[str]:
        return ["diff", *map(str, inputs), option, path]

    for name, text in made.TEMPLATES.items():
        yield name, lambda text=text: diff(bodies, "--template", made.write(text.encode(), folder / "t.jinja"))
    for name, make in made.TOKENIZERS.items():
        yield name, lambda make=make: diff(texts, "--tokenizer", made.write(make(), folder / "t.json"))
    for name, model in made.MODELS.items():
        for option, inputs in (("--template", bodies), ("--tokenizer", texts)):
            yield (
                f"{name} as {option}",
                lambda model=model, option=option, inputs=inputs: diff(
                    inputs, option, made.write(model(), folder / "t.gguf")
                ),
            )
    for name, place in made.PLACES.items():
        path = place(folder)
        yield f"{name} as --template", lambda path=path: diff(bodies, "--template", path)
        yield f"{name} as --tokenizer", lambda path=path: diff(texts, "--tokenizer", path)
        yield f"{name} as a prompt", lambda path=path: ["diff", path, str(texts[0])]


def main() -> int:
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in cases(Path(folder)):
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            ended = measured(arguments())
            sound = ended.status in (0, 1) and not ended.error
            if ended.status == 2:
                sound = "\n" not in ended.error and ended.error.startswith("cachedoctor: error: ")
            if not sound or ended.seconds > SECONDS or ended.mib > MIB:
                wrong.append(name)
            said = ended.error.replace("\n", " / ")[:150]
            mark = "WRONG " if name in wrong else ""
            print(f"{mark}{ended.seconds:6.1f} s {ended.mib:5} MiB {ended.status!s:>5}  {name}: {said}", flush=True)
    print(f"{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "all ended in time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
