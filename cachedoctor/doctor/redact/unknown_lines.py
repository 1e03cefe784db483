"""Counts the lines that are no known message, by their shape: as ``redact`` writes them, with numbers left out.

Nothing that a user may have written is in a shape: what is not understood stands there as ``<line>``.
"""

from __future__ import annotations

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.doctor.scratch import printable
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import UnknownShape
from cachedoctor.redaction.redact_lines import UNKNOWN
from cachedoctor.redaction.secrets import hidden

_NUMBER = late(rb"\d+(?:\.\d+)*")
_BLANKS = late(rb"[ \t]+")
_MOST, _LONGEST = 512, 160
"""Shapes that are told apart, and characters of one."""


class UnknownLines:
    """Reads what an analysis reads."""

    def __init__(self) -> None:
        self._redactor: Redactor | None = None
        self._path, self._line = "", 0
        self._found: dict[str, UnknownShape] = {}

    def open(self, path: str) -> None:
        """Begin an input."""
        self.close()
        self._redactor, self._path, self._line = Redactor(), printable(path), 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the open input, cut anywhere."""
        if self._redactor is not None:
            self._take(self._redactor.feed(chunk))

    def idle(self) -> None:
        """The live input fell silent."""
        if self._redactor is not None:
            self._take(self._redactor.quiet())

    def close(self) -> None:
        """End of the open input."""
        if self._redactor is not None:
            self._take(self._redactor.finish())
        self._redactor = None

    def shapes(self) -> list[UnknownShape]:
        """Give the shapes, the most frequent first."""
        return sorted(self._found.values(), key=lambda one: -one.count)

    def _take(self, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n") if lines else ():
            self._line += 1
            if UNKNOWN in line:
                self._count(line)

    def _count(self, line: bytes) -> None:
        plain = _BLANKS.sub(b" ", _NUMBER.sub(b"N", line.strip())).decode("ascii", "replace")
        shape = hidden(plain)[:_LONGEST]
        if shape not in self._found and len(self._found) >= _MOST:
            shape = UNKNOWN.decode()
        found = self._found.setdefault(shape, UnknownShape(shape, 0, self._path, self._line))
        found.count += 1
