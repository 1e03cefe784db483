"""How far a long input has been read: one row on the standard error of a terminal, gone when it is no longer needed.

Knows bytes and the terminal; knows no log. Never a reason to fail, and nothing at all on a pipe.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cachedoctor.cli.terminal import dumb

if TYPE_CHECKING:
    from cachedoctor.model import Finding

_PATIENCE = 0.5
"""Seconds before it is shown: short work needs none."""
_EVERY = 0.1
"""Seconds between two drawings."""
_BAR = 20
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class Progress:
    """Is told of bytes as they are read, and draws a row now and then until it is closed."""

    def __init__(self, paths: Iterable[str], quiet: bool = False) -> None:
        error = sys.stderr
        self._on = not quiet and error is not None and error.isatty() and not dumb()
        self._total = _size(paths) if self._on else None
        self._read = 0
        self._start = time.monotonic()
        self._due = self._start + _PATIENCE
        self._shown = False

    def read(self, count: int) -> None:
        """Take notice of ``count`` bytes more, as they are stored."""
        self._read += count
        if self._on and (now := time.monotonic()) >= self._due:
            self._due = now + _EVERY
            self._draw(now - self._start)

    def step(self, _: list[str], silent: bool, __: Callable[[], list[Finding]]) -> None:
        """Close at the first silence: the input is written while it is read, so there is no end to wait for."""
        if silent:
            self.close()

    def hide(self) -> None:
        """Remove the row until it is drawn again: something else is about to be printed."""
        if self._shown:
            self._shown = False
            self._write("\r\x1b[K")

    def close(self) -> None:
        """Remove the row for good."""
        self.hide()
        self._on = False

    def _draw(self, seconds: float) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        self._shown = True
        self._write(f"\r{row(self._read, self._total, seconds)[: columns - 1]}\x1b[K")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._on = self._shown = False


def row(read: int, total: int | None, seconds: float) -> str:
    """Say how much was read in ``seconds``, of how much where that is known."""
    if not total:
        return f"reading  {amount(read)}"
    share = min(read / total, 1)
    full = int(share * _BAR)
    left = seconds / share - seconds if share else 0.0
    bar = f"[{'=' * full}{' ' * (_BAR - full)}]"
    return f"reading  {bar} {share:4.0%}  {amount(read)} of {amount(total)}{_left(left)}"


def _left(seconds: float) -> str:
    if seconds < 1:
        return ""
    return f"  {seconds:.0f} s left" if seconds < 90 else f"  {seconds / 60:.0f} min left"


def amount(count: float) -> str:
    """Write a number of bytes in the unit that fits it, of 1,000."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit < 3 or count >= 99.95 else f"{count:.1f} {_UNITS[unit]}"


def _size(paths: Iterable[str]) -> int | None:
    """Bytes of all inputs as they are stored, each once; None when one of them has no size."""
    sizes: dict[tuple[int, int], int] = {}
    for path in paths:
        try:
            found = os.stat(0 if path == "-" else path)
        except OSError:
            continue  # whoever reads it says why
        if stat.S_ISREG(found.st_mode):
            sizes[found.st_dev, found.st_ino] = found.st_size
        elif not stat.S_ISDIR(found.st_mode):
            return None
    return sum(sizes.values())
