"""A program run as a process of its own, and what it took."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts memory."""


class Usage(NamedTuple):
    """What a process took, together with those that it started and waited for."""

    seconds: float
    cpu: float
    """Seconds of processor time, user and system."""
    peak: float
    """MB of resident memory of the largest of these processes; below ``floor()`` it says nothing."""


class FailedError(Exception):
    """A program ended with another status than 0."""


def ours(*arguments: str | os.PathLike[str]) -> list[str]:
    """The command line of cachedoctor, from the environment of this Python."""
    beside = Path(sys.executable).parent / "cachedoctor"
    start = [str(beside)] if beside.exists() else [sys.executable, "-m", "cachedoctor"]
    return [*start, *map(os.fspath, arguments)]


def analyze(*logs: str | os.PathLike[str], form: str = "json", jobs: int = 1) -> list[str]:
    """The command line of an analysis that throws its report away."""
    return ours("analyze", *logs, "--format", form, "--jobs", str(jobs), "-o", os.devnull)


def measure(command: list[str], rounds: int, env: Mapping[str, str] | None = None) -> Usage:
    """The least seconds of all rounds, and the most memory. Raises ``FailedError``."""
    taken = [_once(command, subprocess.DEVNULL, env) for _ in range(rounds)]
    return Usage(min(u.seconds for u in taken), min(u.cpu for u in taken), max(u.peak for u in taken))


def measure_piped(producer: list[str], consumer: list[str]) -> Usage:
    """What ``consumer`` takes to read all that ``producer`` writes. Raises ``FailedError``."""
    writer = subprocess.Popen(producer, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    try:
        return _once(consumer, writer.stdout, None)
    finally:
        writer.stdout.close()
        writer.terminate()
        writer.wait()


def floor() -> float:
    """MB that this process once had: a child counts them as its own until it has more."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 1e6


def _once(command: list[str], stdin: int | IO[bytes], env: Mapping[str, str] | None) -> Usage:
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        child = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **(env or {})}
        )
        if not isinstance(stdin, int):
            stdin.close()  # the child has it: the writer must notice when the child ends
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            words = said.read()[-500:].decode("utf-8", "replace").strip()
            raise FailedError(f"{Path(command[0]).name}: exit status {child.returncode}: {words}")
    return Usage(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _UNIT / 1e6)
