"""A llama-server that lives as long as a ``with`` block, and what can be asked of it.

Knows processes, ports and HTTP. Knows no case and no diagnosis.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e import wheels

START_SECONDS, ANSWER_SECONDS, STOP_SECONDS = 60, 120, 20
LAUNCH = Path(__file__).with_name("launch.py")
# What a machine's owner set for a server of their own must not reach ours.
FOREIGN = ("LLAMA_", "GGML_", "PYTHONPATH")


class ServerDiedError(Exception):
    """The server ended by itself; the message holds the end of its log."""


class Server:
    """One life of llama-server of the given build on a free port of this machine."""

    def __init__(self, build: int, model: Path, options: list[str], env: dict[str, str], log: Path) -> None:
        self.build, self.log = build, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        fixed = [
            "-m",
            str(model),
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "-t",
            "1",
            "-tb",
            "1",
            "--no-warmup",
        ]
        self.command = [sys.executable, str(LAUNCH), str(log), *fixed, *options]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        wheel = wheels.folder(build)
        self.env = inherited | ({"PYTHONPATH": str(wheel)} if wheel else {}) | env

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command, env=self.env, cwd=self.log.parent, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not self._ready():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise ServerDiedError(f"llama-server b{self.build} did not start:\n{self._tail()}")
                time.sleep(0.05)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # its end is the sign to stop; the last lines are written then
        try:
            self.process.wait(STOP_SECONDS)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _tail(self) -> str:
        return self.log.read_text("utf-8", "replace")[-800:] if self.log.exists() else "(no log)"

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send JSON; return the HTTP status and the JSON of the answer."""
        url, data = f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)
        except OSError as gone:
            raise ServerDiedError(f"llama-server b{self.build} gave no answer ({gone}):\n{self._tail()}") from gone
