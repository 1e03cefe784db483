"""How far a long input has been read: one row on the standard error of a terminal, gone when it is no longer needed.

Never a reason to fail, and nothing at all on a pipe.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cachedoctor.cli.terminal import dumb

if TYPE_CHECKING:
    from rich import progress as rich_progress

    from cachedoctor.model import Finding

_PATIENCE = 0.5
"""Seconds before the progress appears: short work needs none and need not import rich."""
_EVERY = 0.1
"""Seconds between two drawings."""


class ReadProgress:
    """Is told of bytes as they are read, and draws a row now and then until it is closed."""

    def __init__(self, paths: Iterable[str], quiet: bool = False, total: int | None = None) -> None:
        """``total``: bytes of all, where they are known; else those of the files at ``paths`` are looked up."""
        error = sys.stderr
        self._on = not quiet and error is not None and error.isatty() and not dumb()
        self._total = (total if total is not None else _size(paths)) if self._on else None
        self._read = 0
        self._due = time.monotonic() + _PATIENCE
        self._row: rich_progress.Progress | None = None

    def read(self, count: int) -> None:
        """Take notice of ``count`` bytes more, as they are stored."""
        self._read += count
        if self._on and (now := time.monotonic()) >= self._due:
            self._due = now + _EVERY
            self._draw()

    def step(self, _: list[str], silent: bool, __: Callable[[], list[Finding]]) -> None:
        """Close at the first silence: the input is written while it is read, so there is no end to wait for."""
        if silent:
            self.close()

    def hide(self) -> None:
        """Remove the row until it is drawn again: something else is about to be printed."""
        if self._row is not None and self._row.live.is_started:
            try:
                self._row.stop()
            except OSError:
                self._on = False

    def close(self) -> None:
        """Remove the row for good."""
        self.hide()
        self._on = False

    def _draw(self) -> None:
        try:
            if self._row is None:
                self._row = _row(self._total)
            self._row.update(self._row.task_ids[0], completed=self._read)
            if self._row.live.is_started:
                self._row.refresh()
            else:
                self._row.start()
        except OSError:
            self._on = False


def _row(total: int | None) -> rich_progress.Progress:
    """Make a row that is not shown yet; rich is imported here and not before."""
    from rich import progress
    from rich.console import Console

    class Terminal(Console):
        """One that keeps its cursor: who is killed, or suspended by Ctrl-Z, could not give it back."""

        def show_cursor(self, show: bool = True) -> bool:
            """Change nothing."""
            return False

    row = progress.Progress(
        progress.TextColumn("reading"), progress.BarColumn(20), progress.TaskProgressColumn(),
        progress.DownloadColumn(), progress.TimeRemainingColumn(),
        console=Terminal(stderr=True, force_terminal=True, force_interactive=True), auto_refresh=False, transient=True,
        redirect_stdout=False, redirect_stderr=False, get_time=time.monotonic,
    )  # fmt: skip
    row.add_task("", total=total)
    return row


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
