"""Keys of a live view, and signals that strike between two steps only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from cachedoctor.knowledge.late_patterns import late

try:
    import fcntl
    import termios
except ImportError:  # Windows: the view has no keys there
    _ABLE = False
else:
    _ABLE = hasattr(signal, "SIGIO") and hasattr(fcntl, "F_SETOWN")

_KEY = late(rb"\x1b(?:\[|O)([A-D])|\x1b\[[0-9;]*[~A-Za-z]|([ -~])")
"""An arrow, another key that is passed over, or a character."""
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}


class Keys:
    """Hears of keys between ``begin`` and ``end``, which may alternate; the signal that tells of one is SIGIO."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        """``pressed`` is called inside a signal handler, with ``q``, ``?``, ``up`` ..."""
        self._pressed = pressed
        self._fd: int | None = None
        self._mode: list[Any] = []
        self._before: Any = None

    def begin(self) -> bool:
        """Take the keyboard; returns whether there is one."""
        if not _ABLE:
            return False
        try:
            self._fd = os.open(os.ttyname(sys.stdout.fileno()), os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            if not _is_ours(self._fd):
                raise OSError(0, "another job has the keyboard")
            self._mode = termios.tcgetattr(self._fd)
            self._before = signal.signal(signal.SIGIO, self._heard)
            fcntl.fcntl(self._fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_ASYNC)
            mode = termios.tcgetattr(self._fd)
            mode[3] &= ~(termios.ICANON | termios.ECHO)  # signals stay: Ctrl-C, Ctrl-Z
            termios.tcsetattr(self._fd, termios.TCSANOW, mode)
        except (OSError, termios.error, AttributeError, ValueError):
            self.end()
            return False
        return True

    def end(self) -> None:
        """Give the keyboard back as it was; what was typed ahead and not read is thrown away with the view."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with contextlib.suppress(OSError, termios.error):
            if self._mode:
                termios.tcsetattr(fd, termios.TCSAFLUSH, self._mode)
        self._mode = []
        os.close(fd)
        if self._before is not None:
            signal.signal(signal.SIGIO, self._before)
            self._before = None

    def _heard(self, _: int, __: FrameType | None) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, 64)
        except OSError:  # nothing is left to read
            return
        for found in _KEY.finditer(data):
            key = _ARROWS.get(found[1] or b"") or (found[2] or b"").decode()
            if key:
                self._pressed(key)


def _is_ours(fd: int) -> bool:
    """Whether this job is in the foreground of its terminal: to set one up from the background would stop it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal that nobody is logged in to
        return True


_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupts:
    """In its ``with`` block these signals raise KeyboardInterrupt, as soon as no step is held together."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._is_deferring = False
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            # A job started in the background or by nohup ignores the signal, and must go on doing so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._strike)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a step, and the steps within, together: a signal waits for its end.

        A second one does not wait.
        """
        if self._held:
            yield
            return
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[Callable[[], bool]]:
        """Only take note of the first signal in the block, which is to end soon when what is given turns true."""
        self._is_deferring = True
        try:
            yield lambda: self._asked
        finally:
            self._is_deferring = False

    @property
    def holding(self) -> bool:
        """Whether a step is under way: nobody may look at what it changes."""
        return self._held

    def _strike(self, _: int, __: FrameType | None) -> None:
        if self._is_deferring and not self._asked:
            self._asked = True
            return
        if self._held and not self._pending and not self._asked:
            self._pending = True
            return
        self._pending = False
        raise KeyboardInterrupt
