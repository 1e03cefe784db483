"""A pipe or connection whose other side closes while it is written to is an error, not the end of the command.

The command line lets ``SIGPIPE`` end it, as it ends every Unix tool whose reader goes away (``| head``). What is
written to anybody else fails with an OSError instead, which somebody can say something about.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


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
