"""Errors that a user can fix, and connections that break while they are written to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class CacheDoctorError(Exception):
    """A fault that the user can mend: one line, a hint, and the exit status of the command."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


@contextlib.contextmanager
def pipes_may_break() -> Iterator[None]:
    """In the block a broken pipe is an OSError; in a thread it is whatever it is for the first thread."""
    if not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
