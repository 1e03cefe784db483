"""The interface of every source of log bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from cachedoctor.model import CacheDoctorError

# In smaller pieces more requests are cut in two, and fewer are examined together: those of 64 KiB take 2 to 11 % more.
# What is yielded may be larger: UTF-16 grows by up to one half when it becomes UTF-8, and the few bytes held back to
# recognise a format are put before the next read.
READ_SIZE = 512 * 1024
"""Bytes asked for by one read or by one step of unpacking."""

IDLE_SECONDS = 0.2
"""A live source that got nothing for this long yields ``b""``."""


Told = Callable[[int], None]
"""Callback for bytes read, in their stored form."""


def unheard(_: int) -> None:
    """Ignore the number of bytes."""


class SourceError(CacheDoctorError):
    """The input cannot be opened, read or unpacked (to its end)."""


class FolderError(SourceError):
    """The input is a folder."""

    def __init__(self, path: str, hint: str) -> None:
        super().__init__(f"{path}: is a directory", hint)
        self.path = path


class Source(Protocol):
    """One input of log bytes."""

    @property
    def path(self) -> str:
        """The name to show; ``-`` is the standard input."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the unpacked UTF-8 bytes in order, at most 1 MiB at a time, split anywhere.

        An empty chunk says that nothing arrived for about ``IDLE_SECONDS``; only live sources yield it.
        Raises ``SourceError`` on a fault, after everything before the fault has been yielded.
        """
