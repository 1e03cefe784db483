"""The records of one log: those that are known by their keys, and those of the collector that it came through.

Knows one stored line at a time, at the depth of wrappers at which it stands; must not know joins or line numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from cachedoctor.envelope.collected import BEGIN, Collected
from cachedoctor.envelope.records import Message, Piece, read_record, rewritten
from cachedoctor.envelope.shapes import first_written, is_written


class LogRecords:
    """Reads records; what collector a log has, at each depth, is known once a record of it held a server's line."""

    def __init__(self) -> None:
        self._collected: defaultdict[int, Collected] = defaultdict(Collected)
        self.decided = 0
        """Depth down to which a line of a server showed what is around it."""
        self.plain = 0
        """Depth down to which it showed that no collector is."""

    @property
    def known(self) -> bool:
        """Whether the log came through a collector."""
        return any(one.known for one in self._collected.values())

    def read(self, line: bytes, depth: int) -> Piece | Message | None:
        """Read a record; None for a line that is none in this log."""
        if line[:1] != b"{":
            return read_record(line)
        collected = self._collected[depth]
        if collected.known:
            return collected.read(line) or read_record(line)
        record = read_record(line) or collected.read(line)
        if record is None and not collected.undecided and not self.known:
            self.plain = max(self.plain, depth)
        return record

    def frame(self, line: bytes, depth: int, name: Callable[[str, bytes], bytes]) -> bytes | None:
        """Return the time of a record that may be the collector's and holds no line; None where it is not known."""
        collected = self._collected[depth]
        return collected.frame(line, name) if collected.known or collected.undecided else None

    def came_without(self, line: bytes, depth: int) -> None:
        """Take a line that no wrapper is left of at this depth: nor did a collector wrap it further out."""
        if depth <= self.decided or line.startswith(b"{"):
            return
        written = is_written(line)
        if written:
            self.decided = depth
            self.plain = 0 if self.known else depth
        for at in range(1, depth + 1) if written else (depth,):
            self._collected[at].came_without(line)

    def came_bare(self, lines: bytes) -> None:
        """Take whole lines that no wrapper stood before."""
        if self.decided:
            return
        written = first_written(lines)
        for line in [written] if written is not None else lines.split(b"\n", BEGIN)[:-1]:
            self.came_without(line, 1)

    def rewritten(self, line: bytes, text: bytes, depth: int, name: Callable[[str, bytes], bytes]) -> bytes:
        """Return the record ``line`` with another text, and with names by ``name(kind, part)`` in its wrapper."""
        collected = self._collected[depth] if line.startswith(b"{") else None
        if collected is not None and collected.known and collected.read(line) is not None:
            return collected.rewritten(line, text, name)
        return rewritten(line, text, name)
