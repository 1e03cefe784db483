"""Commands that fork from a warm process, with the face of ``subprocess``."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO

from warm import HEADER, TOLD

PATIENCE = 120
"""Seconds after which a command is given up; nothing here measures."""
FORKS = hasattr(os, "fork")
ROOT = Path(__file__).parent.parent
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "POLARS_", "TYPER_", "_TYPER_", "TERMINAL_WIDTH")
"""Variables that begin so are read before a command runs: by the interpreter, the C library, or upon an import."""


def early(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What of an environment is read early. The checkout, as PYTHONPATH, is what is imported anyway."""
    checkout = ("PYTHONPATH", str(ROOT))
    return tuple(sorted(item for item in env.items() if item[0].startswith(AT_START) and item != checkout))


Stream = int | IO[bytes] | None


class Server:
    """The warm process. It ends when this side of its socket is closed, however this process ends."""

    def __init__(self, env: dict[str, str]) -> None:
        self._ended: set[str] = set()
        """First words of command lines of which one ended with all that belongs to the end of an interpreter."""
        self._requests, theirs = socket.socketpair()
        with theirs:
            script = str(Path(__file__).with_name("warm.py"))
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=ROOT, env=env,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

        atexit.register(self._end)

    def _end(self) -> None:
        self._requests.close()
        self._process.wait()

    def fork(self, args: list[str], folder: str, env: dict[str, str], streams: list[int]) -> socket.socket:
        """Start a command; returns the socket on which its process id and then its status come."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = next(iter(args), "")
            whole = command not in self._ended
            self._ended.add(command)
            body = json.dumps({"args": args, "folder": folder, "env": env, "whole": whole}).encode()
            socket.send_fds(self._requests, [HEADER.pack(len(body))], [*streams, theirs.fileno()])
            self._requests.sendall(body)
        return ours


@cache
def server(env: tuple[tuple[str, str], ...]) -> Server:
    """The warm process of this one for what is read early, started when it is first needed."""
    late = dict(set(os.environ.items()) - set(early(os.environ)))
    return Server({**late, **dict(env)})


class Process:
    """What tests use of ``subprocess.Popen``, for a command that was forked."""

    def __init__(
        self, args: list[str], folder: str, env: dict[str, str], stdin: Stream, stdout: Stream, stderr: Stream
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        with contextlib.ExitStack() as theirs:
            self.stdin, into = self._stream(stdin, 0, theirs)
            self.stdout, out = self._stream(stdout, 1, theirs)
            self.stderr, error = self._stream(stderr, 2, theirs)
            self._life = server(early(env)).fork(args, folder, env, [into, out, error])
        self.pid = self._told()

    @staticmethod
    def _stream(kind: Stream, fd: int, theirs: contextlib.ExitStack) -> tuple[IO[bytes] | None, int]:
        """Our end of a stream, if it has one, and the descriptor for the child."""
        if kind == subprocess.PIPE:
            reads, writes = os.pipe()
            ours, other = (writes, reads) if fd == 0 else (reads, writes)
            theirs.callback(os.close, other)
            return open(ours, "rb" if fd else "wb"), other
        if kind == subprocess.DEVNULL:
            null = os.open(os.devnull, os.O_RDWR)
            theirs.callback(os.close, null)
            return None, null
        if kind is None:
            return None, fd
        return None, kind if isinstance(kind, int) else kind.fileno()

    def _told(self) -> int:
        data = self._life.recv(TOLD.size)
        if not data:
            raise RuntimeError("tests/warm.py ended; what it said stands above")
        return TOLD.unpack(data)[0]

    def poll(self) -> int | None:
        """Its status, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; gives its status."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._life, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._told()
            self._life.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, data: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write ``data``, read both streams to their end, and wait."""
        ends = time.monotonic() + (PATIENCE if timeout is None else timeout)
        left = memoryview(data or b"")
        got = {file: bytearray() for file in (self.stdout, self.stderr) if file is not None}
        with selectors.DefaultSelector() as ready:
            for file in got:
                ready.register(file, selectors.EVENT_READ)
            if self.stdin is not None and not self.stdin.closed:
                ready.register(self.stdin, selectors.EVENT_WRITE)
            while ready.get_map():
                found = ready.select(max(0.0, ends - time.monotonic()))
                if not found:
                    raise subprocess.TimeoutExpired(self.args, ends)
                for key, _ in found:
                    if key.fileobj is self.stdin:
                        more = left = _written(key.fd, left)
                    else:
                        more = os.read(key.fd, 65536)
                        got[key.fileobj] += more
                    if not more:
                        ready.unregister(key.fileobj)
                        key.fileobj.close()
        self.wait(max(0.0, ends - time.monotonic()))
        return bytes(got.get(self.stdout, b"")), bytes(got.get(self.stderr, b""))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for file in (self.stdout, self.stderr, self.stdin):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):  # what it never took
                    file.close()
        self.wait()


def _written(fd: int, left: memoryview) -> memoryview:
    """What is left to be written; nothing when nobody reads."""
    try:
        return left[os.write(fd, left[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return left[:0]
