"""Faults of our own: what one engine, one server or one rule cannot do must not cost the rest of the report.

``OverflowError at engines/vllm/periods.py:126``: where it happened, and no word of the log.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath

import cachedoctor
from cachedoctor.model import CacheDoctorError

_EXPECTED = (CacheDoctorError, OSError, MemoryError)
"""What the machine or the user has to fix; it ends the command."""
_ROOT = PurePath(cachedoctor.__file__).parent

Server = tuple[str, str | None]
"""Engine and origin."""


class Faults:
    """The servers of one input, or of a log with its rotations, that are not read any further."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """``tell`` takes the words for each of them."""
        self._tell = tell
        self.any = False
        self.servers: set[Server] = set()

    def take(self, server: Server, error: Exception) -> None:
        """Give up a server; raises ``error`` again where it is none of our own."""
        if isinstance(error, _EXPECTED):
            raise error
        self.any = True
        self.servers.add(server)
        engine, origin = server
        of = "" if origin is None else f" of {origin}"
        self._tell(f"internal error, lines of {engine}{of} are ignored from here on: {described(error)}")


def described(error: Exception) -> str:
    """Name a fault and its place in our code."""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if _ROOT in PurePath(frame.filename).parents]
    if not inside:
        return type(error).__name__
    place = PurePath(inside[-1].filename).relative_to(_ROOT).as_posix()
    return f"{type(error).__name__} at {place}:{inside[-1].lineno}"
