"""A server that lives as long as a ``with`` block, and what can be asked of it; llama-server is one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
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


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def own_env(foreign: tuple[str, ...]) -> dict[str, str]:
    """Environment of this process without the variables that begin with one of these."""
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)}


class Process:
    """One life of a server program that answers /health on ``port`` and ends when its standard input does."""

    def __init__(
        self, name: str, command: list[str], env: dict[str, str], port: int, log: Path, start_seconds: float
    ) -> None:
        self.name, self.command, self.env, self.port, self.log = name, command, env, port, log
        self.start_seconds = start_seconds

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command, env=self.env, cwd=self.log.parent, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + self.start_seconds
            while not self._ready():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise ServerDiedError(f"{self.name} did not start:\n{self._tail()}")
                time.sleep(0.05)
        except BaseException:
            with suppress(subprocess.TimeoutExpired):
                self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        """Let it end by itself; its last lines are written then. One that does not is killed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
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
            raise ServerDiedError(f"{self.name} gave no answer ({gone}):\n{self._tail()}") from gone


class Server(Process):
    """One life of llama-server of the given build on a free port of this machine."""

    def __init__(self, build: int, model: Path, options: list[str], env: dict[str, str], log: Path) -> None:
        port = free_port()
        # One thread each: the models are tiny, and the machine has other work.
        fixed = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-t", "1", "-tb", "1", "--no-warmup"]
        wheel = wheels.folder(build)
        super().__init__(
            f"llama-server b{build}",
            [sys.executable, str(LAUNCH), str(log), *fixed, *options],
            own_env(FOREIGN) | ({"PYTHONPATH": str(wheel)} if wheel else {}) | env,
            port,
            log,
            START_SECONDS,
        )
