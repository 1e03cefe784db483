"""Patterns of what few logs have: to compile all of them takes longer than to read a short log."""

from __future__ import annotations

import re
from functools import cached_property
from typing import AnyStr, Generic


class LaterPattern(Generic[AnyStr]):
    """A pattern that is compiled when it is first asked for."""

    def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
        """``pattern`` and ``flags`` are those of ``re.compile``."""
        self._pattern: AnyStr = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[AnyStr]:
        """The pattern itself."""
        return re.compile(self._pattern, self._flags)
