"""The nouns that flow through cachedoctor. Knows no engine, no rule, no file; imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]
Memory = Literal["attention", "swa", "hybrid", "recurrent"]
Outcome = Literal["cold", "reused", "partial", "reprocessed", "failed", "cancelled", "unknown"]

SEVERITY_ORDER: dict[str, int] = {"note": 0, "warning": 1, "error": 2}


class CacheDoctorError(Exception):
    """A fault that the user can mend: one line, a hint, and the exit status of the command."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


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

    def number(self, index: int) -> int:
        """Line number in the input of the body with the 0-based ``index``."""
        return self.first + index if self.numbers is None else self.numbers[index]
