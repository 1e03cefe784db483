"""The parent's side: starts the child, asks it, and says in one line why it ended.

The child is a fresh interpreter that is given requests through a pipe. It is started without the working directory on
its path, and no code goes through the pipe.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from time import monotonic
from typing import Any

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.confined import pipe_messages
from cachedoctor.prompts.confined.pipe_messages import PipeMessage, read, write

_WORKER = "cachedoctor.prompts.confined_worker"
_ROOT = str(Path(__file__).parents[3])
"""Folder that the package lies in."""
_START = (
    f"import sys; sys.path[:0] = [p for p in sys.argv[1:] if p not in sys.path]; from {_WORKER} import main; main()"
)
_HINT = "templates and tokenizers run with limits; check that this file belongs to the server's model"


class FailedError(CacheDoctorError):
    """A template or a tokenizer could be read, and then failed at its work or went beyond its limits."""


class Child:
    """One process for all that strangers wrote. Started when first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._seconds = pipe_messages.WALL_SECONDS
        self._ended: FailedError | None = None

    def ask(self, subject: str, head: dict[str, Any], data: bytes = b"", chars: int = 0) -> PipeMessage:
        """Give the answer to a request.

        Args:
            subject: what is run, as a fault names it: ``the tokenizer m.gguf``.
            head: the operation and its small arguments.
            data: its text.
            chars: how long the text is that it works on.

        Raises:
            CacheDoctorError: the file cannot be used.
            FailedError: it failed at its work, or went beyond its limits; every later request fails the same.
        """
        if self._ended is not None:
            raise self._ended
        self._seconds += chars / pipe_messages.CHARS_PER_SECOND
        answer = self._exchange(self._started(), PipeMessage({**head, "subject": subject, "chars": chars}, data))
        if answer is None or "limit" in answer.head:
            self._ended = self._fault(subject, answer)
            self.close()
            raise self._ended
        if "error" in answer.head:
            kind = FailedError if answer.head.get("failed") else CacheDoctorError
            raise kind(str(answer.head["error"]), str(answer.head.get("hint", "")))
        return answer

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._finalizer()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if not sys.executable:
                raise CacheDoctorError(
                    "no Python interpreter was found to run templates and tokenizers", "use python -m"
                )
            self._process = subprocess.Popen(  # noqa: S603 - our own module, by a fixed command
                [sys.executable, "-P", "-c", _START, _ROOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: PipeMessage) -> PipeMessage | None:
        """Send and receive; None if the process ended, by itself or because its time was over."""
        timer = threading.Timer(max(0.0, self._seconds), process.kill)
        began = monotonic()
        timer.start()
        try:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - for mypy
            write(process.stdin, request)
            return read(process.stdout)
        except (OSError, ValueError):  # it ended while it was written to, or wrote what is not a message
            return None
        finally:
            timer.cancel()
            self._seconds -= monotonic() - began

    def _fault(self, subject: str, answer: PipeMessage | None) -> FailedError:
        """Say why the child ended."""
        if answer is not None:
            return FailedError(f"{subject}: needs more than {pipe_messages.memory_mib():,} MiB of memory", _HINT)
        assert self._process is not None  # noqa: S101 - it was asked
        if self._seconds <= 0:
            return FailedError(f"{subject}: took longer than {pipe_messages.WALL_SECONDS:.0f} s", _HINT)
        self._process.kill()
        status = self._process.wait()
        if status == -getattr(signal, "SIGXCPU", 0):
            return FailedError(f"{subject}: took more than {pipe_messages.CPU_SECONDS} s of processor time", _HINT)
        return FailedError(f"{subject}: its process ended (status {status})", _HINT)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what it never read is of no use to anybody
            if pipe is not None:
                pipe.close()
