"""Ctrl-C, SIGTERM and SIGHUP strike between two steps, never inside one. Knows signals only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

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
        """Hold a step, and the steps within, together: a signal waits for its end. A second one does not wait."""
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
