"""Lines of a log on their way, and those kept as evidence."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class LogFile(NamedTuple):
    """One of the rotations of a log."""

    path: str
    before: int = 0
    """Lines of the log in the files before it: a server counts its lines on from file to file."""


class Segment(msgspec.Struct):
    """Consecutive lines of one origin, their wrappers removed."""

    origin: str | None
    """Router port, compose service, or None."""
    data: bytes
    """The bodies, each ended by a newline."""
    first: int
    """1-based number of the first line in its input."""
    numbers: list[int] | None = None
    """Line number of each body; None when they are consecutive from ``first``."""
    stored: dict[int, bytes] = msgspec.field(default_factory=dict)
    """The lines that a wrapper was taken from, as they were stored, by number; the
    ends of one that had to wait for its next part."""

    def number(self, index: int) -> int:
        """Line number in the input of the body with the 0-based ``index``."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def behind(self, lines: int) -> Segment:
        """Return the same segment, but for stored lines, with so many lines before its input."""
        numbers = None if self.numbers is None else [number + lines for number in self.numbers]
        return Segment(self.origin, self.data, self.first + lines, numbers)


class Mark(msgspec.Struct, gc=False):
    """A log line kept as evidence."""

    line: int
    """1-based line number in the input."""
    text: bytes
    """The line without its wrapper."""
