"""A command that is forked from the warm process does what one that starts for real does."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from command import LOG, PATIENCE, Started, run, start
from forks import FORKS, Process
from terminals import in_terminal

pytestmark = pytest.mark.skipif(not FORKS, reason="processes cannot be forked")
COLD = {"PYTHONNOUSERSITE": "1"}
"""A variable that is read at the start of the interpreter: the command is not forked, and does the same."""


def test_which_is_forked() -> None:
    with start("--version") as warm, start("--version", env={**os.environ, **COLD}) as cold:
        assert isinstance(warm, Process)
        assert isinstance(cold, subprocess.Popen)
        assert warm.communicate() == cold.communicate() != (b"", b"")
        assert (warm.returncode, cold.returncode) == (0, 0)


@pytest.mark.spread(3)
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "words",
    ["--help", "", "analyze", "analyze -f json", "analyze none.log", "analyze --width 7", "explain CD101", "redact",
     "explain settings"],
)  # fmt: skip
def test_streams_and_status(tmp_path: Path, words: str) -> None:
    """With a log on the standard input, in a folder, under a variable."""
    forked = run(*words.split(), stdin=LOG, folder=str(tmp_path), COLUMNS="70")
    started = run(*words.split(), stdin=LOG, folder=str(tmp_path), COLUMNS="70", **COLD)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert forked.stdout or forked.stderr


@pytest.mark.sweep
@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_on_a_terminal(log: Path, which: str) -> None:
    """Colours, links and the row of progress go by what each stream is."""
    begin = partial(start, "analyze", log)
    warm, cold = in_terminal(begin, which), in_terminal(begin, which, **COLD)  # type: ignore[arg-type]
    assert warm == cold
    assert warm[0] == 0
    assert (b"\x1b[" in warm[2]) is (which == "stdout")


@pytest.mark.sample(1)
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_signals(cold: bool, number: signal.Signals) -> None:
    process: Started
    with start("analyze", env={**os.environ, **(COLD if cold else {})}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LOG)
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == (130 if number == signal.SIGINT else -number)
