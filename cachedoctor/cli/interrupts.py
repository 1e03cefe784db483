"""Ctrl-C and SIGTERM strike between two steps, never inside one. Knows signals only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """In its ``with`` block both signals raise KeyboardInterrupt, as soon as no step is held together."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
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
        """Hold a step together: a signal waits for its end. A second one does not wait."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _strike(self, _: int, __: FrameType | None) -> None:
        if self._held and not self._pending:
            self._pending = True
            return
        raise KeyboardInterrupt
