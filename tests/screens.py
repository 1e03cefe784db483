"""A terminal of any size around a command, and what the command drew on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator

from command import Started, start

PATIENCE = 120
"""Seconds after which a test gives up; nothing here measures."""
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""What switches to the alternate screen and back."""
_HOME = b"\x1b[H"
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Reads what a process writes to its terminal."""

    def __init__(self, process: Started, fd: int, name: str) -> None:
        self.process = process
        self.fd = fd
        self.name = name
        self.written = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # the kernel tells the foreground group only

    def picture(self) -> list[str]:
        """The rows drawn last, as far as they came."""
        drawn = self.written.rpartition(_HOME)[2].partition(LEAVE)[0]
        return _ESCAPE.sub(b"", drawn).decode("utf-8", "replace").replace("\r", "").split("\n")

    def read(self, seconds: float = PATIENCE) -> bool:
        """Read what comes next; gives whether something came in time."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        self.written += os.read(self.fd, 65536)
        return True

    def wait_for(self, *words: str) -> list[str]:
        """Read until one picture holds all ``words``; gives it."""
        end = time.monotonic() + PATIENCE
        while not all(word in "\n".join(self.picture()) for word in words):
            assert self.read(max(0.0, end - time.monotonic())), self.picture()
        return self.picture()

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.fd, keys)

    def end(self, number: int | None = None, after: Callable[[], bool] | None = None) -> str:
        """Send a signal and read to the end; gives what is on the normal screen then.

        ``after``: what is to be true of the terminal as soon as the screen is given back.
        """
        held = os.open(self.name, os.O_RDWR | os.O_NOCTTY)  # its mode cannot be asked for once nobody has it open
        if number is not None:
            self.process.send_signal(number)
        while after is not None and LEAVE not in self.written:
            assert self.read()
        assert after is None or after()
        os.close(held)
        with contextlib.suppress(OSError):  # Linux says EIO when the last writer is gone
            while data := os.read(self.fd, 65536):
                self.written += data
        self.process.wait(PATIENCE)
        return _ESCAPE.sub(b"", self.written.rpartition(LEAVE)[2]).decode().replace("\r\n", "\n")


@contextlib.contextmanager
def on_terminal(
    *args: object, columns: int = 80, rows: int = 24, stdin: int | None = None, forks: bool = True
) -> Iterator[Terminal]:
    """Run cachedoctor on a terminal; a test that fails does not leave it behind.

    ``forks``: from a warm process, whose children no shell could stop and continue.
    """
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    keep = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    environment = {**keep, "TERM": "xterm-256color", "FORCE_HYPERLINK": "0"}
    if not forks:
        environment["PYTHONHASHSEED"] = "0"
    streams = {"stdin": theirs if stdin is None else stdin, "stdout": theirs, "stderr": theirs}
    with start(*args, **streams, env=environment) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours, name)
        finally:
            process.kill()
            os.close(ours)
