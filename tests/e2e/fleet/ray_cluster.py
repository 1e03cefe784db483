"""A cluster of Ray that others connect to, on this machine, and its death."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from e2e.fleet.logs import demand
from e2e.server import free_port


class RayCluster:
    """In its ``with`` block: a head with two cores. Its token is made for it."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.env = {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip
        self._folder = tempfile.mkdtemp(prefix="cd-ray-")  # sockets of Ray lie in it: their names must be short

    def __enter__(self) -> RayCluster:
        """Start it."""
        command = [
            Path(sys.executable).parent / "ray", "start", "--head", "--num-cpus", "2", "--node-ip-address", "127.0.0.1",
            "--port", self.address.rpartition(":")[2], "--include-dashboard", "false", "--temp-dir", self._folder,
        ]  # fmt: skip
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        demand(done.returncode == 0, f"ray start: {done.stderr[-500:]}")
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left of it."""
        self.kill(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, title: str) -> None:
        """Kill its processes in whose command line ``title`` stands."""
        found = list(self._processes(title))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ends = time.monotonic() + 20
        while any(self._is_there(pid) for pid in found) and time.monotonic() < ends:
            time.sleep(0.05)

    def _processes(self, title: str) -> Iterator[int]:
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                own = f"RAY_AUTH_TOKEN={self.env['RAY_AUTH_TOKEN']}".encode()
                ours = own in (place / "environ").read_bytes().split(b"\0") and "cachedoctor fleet" not in words
                if ours and (title in words or title == self._folder):
                    yield int(place.name)

    @staticmethod
    def _is_there(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False
