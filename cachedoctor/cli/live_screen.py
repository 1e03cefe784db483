"""The live view on a terminal: when a picture is drawn, and how large.

Imported when a view begins, since it brings rich with it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cachedoctor.cli.ending import Interrupts, Keys
from cachedoctor.doctor.analysis.live_view import Observer
from cachedoctor.report.base import Appearance
from cachedoctor.report.live.screen import Screenful, draw

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.model import Finding

_PAUSE = 0.1
"""Seconds between two pictures while lines keep coming."""
_SMALLEST = (20, 4)

_GIVE_BACK = b"\x1b[?25h\x1b[?1049l"
"""Shows the cursor and the normal screen, as rich does."""


class Picture(Protocol):
    """What is drawn where no log is read."""

    def count(self) -> int:
        """How many rows can be chosen."""
        ...

    def draw(self, width: int, height: int, ascii_only: bool, chosen: Screenful) -> list[Text]:
        """Give at most ``height`` rows of at most ``width`` cells."""
        ...


class Screen:
    """Draws on the alternate screen of a terminal while its ``with`` block lasts; what was there before comes back."""

    def __init__(
        self, look: Appearance, interrupts: Interrupts, keys: bool = True, picture: Picture | None = None
    ) -> None:
        """``keys``: nobody else reads the keyboard; ``picture``: is drawn in place of what an analyzer knows."""
        self._picture = picture
        self.listener = Observer()
        self.analyzer: Analyzer | None = None
        """The analyzer whose state is shown, if there is no ``picture``; to be set before anything is drawn."""
        self._look = look
        self._interrupts = interrupts
        self._console = Console(
            file=sys.stdout, color_system="standard" if look.color else None, no_color=not look.color,
            force_terminal=True, force_jupyter=False, legacy_windows=False, highlight=False, markup=False, emoji=False,
        )  # fmt: skip
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._drawn = 0.0
        self._busy = False
        self._stale = False
        """Something changed since the last picture."""
        self._before: dict[int, Any] = {}
        self._keys = Keys(self._pressed) if keys else None
        self._keyed = False
        """There is a keyboard."""
        self._first = 0
        """Finding that is shown first, and whole."""
        self._helps = False

    def __enter__(self) -> Screen:
        try:
            self._begin()
        except BaseException:
            self._end()  # nobody else gives the screen back
            raise
        return self

    def _begin(self) -> None:
        self._console.size = _size()
        self._handle(SIGQUIT=self._quit)  # from the first picture on, which a start may draw
        self._live.start()
        self._keyed = self._keys is not None and self._keys.begin()
        self._handle(SIGWINCH=self._resized, SIGTSTP=self._suspended, SIGALRM=self._resized)
        self._show()

    def _handle(self, **handlers: Callable[[int, FrameType | None], None]) -> None:
        """Have these signals handled, where there are such and nobody ignores them."""
        for name, handler in handlers.items():
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._interrupts.held():  # a second signal must not come before the screen is given back
            self._end()

    def _end(self) -> None:
        try:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        finally:
            self._release()

    def _release(self) -> None:
        """Give keyboard and screen back."""
        if self._keys is not None:
            self._keys.end()
        self._live.stop()

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Draw unless that was just done; a silence, which follows every burst of lines, shows the rest."""
        self.due(silent)

    def due(self, silent: bool) -> None:
        """Draw unless that was just done and more is coming."""
        self._stale = self._stale or not silent
        if self._stale and (silent or time.monotonic() - self._drawn >= _PAUSE):
            self._show()

    def _resized(self, _: int, __: FrameType | None) -> None:
        self._stale = True
        if self._busy:
            return  # the picture that is drawn is drawn again
        if self._interrupts.holding:  # it may be the last step for long
            signal.setitimer(signal.ITIMER_REAL, _PAUSE)
        else:
            self._show()

    def _suspended(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its screen, and ``fg`` gives it back."""
        self._release()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, self._suspended)
        self._live.start()
        self._keyed = self._keys is not None and self._keys.begin()
        self._resized(number, frame)

    def _quit(self, number: int, _: FrameType | None) -> None:
        """Ctrl-\\: ends at once, as it does elsewhere, but gives the terminal back.

        It may come within a write to the terminal, which no buffer takes twice: the screen is given back past it.
        """
        if self._keys is not None:
            self._keys.end()
        if self._live.is_started:
            os.write(self._console.file.fileno(), _GIVE_BACK)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def _pressed(self, key: str) -> None:
        if key in "qQ":
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
            return
        if key == "?":
            self._helps = not self._helps
        elif key in ("down", "j"):
            self._first += 1
        elif key in ("up", "k"):
            self._first = max(self._first - 1, 0)
        else:
            return
        self._resized(0, None)

    def _show(self) -> None:
        if self.analyzer is None and self._picture is None:
            return
        self._busy = True
        try:
            while True:  # until no resize came in between
                self._stale = False
                self._console.size = width, height = _size()
                self._live.update(Group(*self._drawing(width, height)), refresh=True)
                if not self._stale:
                    break
        finally:
            self._busy = False
        self._drawn = time.monotonic()

    def _drawing(self, width: int, height: int) -> list[Text]:
        if self._picture is not None:
            self._first = min(self._first, max(self._picture.count() - 1, 0))
            chosen = Screenful(self._first, self._helps, self._keyed)
            return self._picture.draw(width, height, self._look.ascii_only, chosen)
        if self.analyzer is None:
            return []
        view = self.listener.view(self.analyzer)
        self._first = min(self._first, max(len(view.findings) - 1, 0))
        return draw(view, width, height, self._look.ascii_only, Screenful(self._first, self._helps, self._keyed))


def _size() -> tuple[int, int]:
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        found = os.terminal_size((80, 24))
    return max(found.columns or 80, _SMALLEST[0]), max(found.lines or 24, _SMALLEST[1])
