"""Logs for a fleet, made by benchmarks/gen_log.py, and what a run of ``cachedoctor fleet`` left."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
ERAS = ("b8352", "b9713", "b11549-trace", "b11549-default")
MARK = "CACHEDOCTOR_E2E_FLEET"
"""Variable that all processes of one run inherit, those of a cluster that it starts as well."""
SAME = ("requests", "findings", "sessions", "not_evaluated", "samples", "batches", "reports")
"""What does not depend on who read the logs; ``files`` has seconds."""


class WrongError(Exception):
    """It is not as it has to be."""


def demand(is_so: object, what: str) -> None:
    """Raise ``WrongError`` unless something is so."""
    if not is_so:
        raise WrongError(what)


def made(seed: int, size: str) -> bytes:
    """Return a log; the same arguments give the same bytes."""
    era = ERAS[seed % len(ERAS)]
    command = [ROOT / "benchmarks" / "gen_log.py", "--era", era, "--size", size, "--lives", "2", "--seed", str(seed)]
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, check=True).stdout


def folder_of_logs(folder: Path, count: int, size: str) -> Path:
    """Write ``count`` logs of about ``size``: a folder for each, every fourth packed, every fifth with a rotation."""
    for number in range(count):
        place = folder / f"host-{number:04}"
        place.mkdir(parents=True)
        data = made(number, size)
        if number % 5 == 0:
            half = data.index(b"\n", len(data) // 2) + 1
            (place / "server.log.1").write_bytes(data[:half])
            data = data[half:]
        if number % 4 == 0:
            (place / "server.log.gz").write_bytes(gzip.compress(data, 1))
        else:
            (place / "server.log").write_bytes(data)
    return folder


class Run(NamedTuple):
    """A run of the command."""

    status: int
    out: str
    error: str
    seconds: float


class Started:
    """The command, as it runs."""

    def __init__(self, *args: object, env: Mapping[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cachedoctor", "fleet", *map(str, args)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CACHEDOCTOR_NO_CONFIG": "1", MARK: self.mark, **(env or {})},
        )  # fmt: skip

    def ended(self) -> Run:
        """Wait for its end."""
        out, error = self.process.communicate(timeout=4 * 3600)
        return Run(self.process.returncode, out, error, time.monotonic() - self._began)

    def workers(self, title: str) -> Iterator[int]:
        """Yield the processes of this run in whose command line ``title`` stands."""
        for place in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes().split(b"\0")
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if ours and title in words and int(place.name) != self.process.pid:
                yield int(place.name)

    def kill_one(self, title: str, folder: Path, after: int, within: float = 300) -> None:
        """Kill a process that reads, as the kernel does where memory ends, once ``after`` logs are done.

        Raises:
            WrongError: they were not after ``within`` seconds.
        """
        ends = time.monotonic() + within
        while time.monotonic() < ends and self.process.poll() is None:
            done = len(list((folder / "files").glob("*.parquet")))
            busy = [pid for pid in self.workers(title) if _works(pid)]
            if done >= after and busy:
                os.kill(busy[0], signal.SIGKILL)
                return
            time.sleep(0.05)
        raise WrongError(f"no process {title} was at work")


def _works(pid: int) -> bool:
    """Whether a process takes time of a core."""
    first = _ticks(pid)
    time.sleep(0.2)
    return _ticks(pid) > first >= 0


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])


def fleet(*args: object, env: Mapping[str, str] | None = None) -> Run:
    """Run the command to its end."""
    return Started(*args, env=env).ended()


def digests(folder: Path) -> dict[str, str]:
    """Return what every table of every log holds, byte by byte."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in SAME
        for path in sorted((folder / name).iterdir())
    }


def rows(folder: Path, table: str) -> list[dict[str, object]]:
    """Return the rows of a table."""
    import polars as pl

    return pl.read_parquet(sorted((folder / table).glob("*.parquet"))).to_dicts()
