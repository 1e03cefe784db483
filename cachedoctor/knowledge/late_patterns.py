"""Patterns that are compiled on first use: compiling all of them takes longer than reading a short log."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_MEMBERS = (
    *("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split"),
    *("groups", "groupindex", "flags"),
)


class LatePattern:
    """Stands for a ``re.Pattern``; after the first use its members are those of the compiled one."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self.given_flags = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _MEMBERS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self.given_flags)
        self.__dict__.update((member, getattr(compiled, member)) for member in _MEMBERS)
        return self.__dict__[name]


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return ``re.compile(pattern, flags)``, compiled on first use.

    Functions of ``re`` do not take it.
    """
    return cast("re.Pattern[AnyStr]", LatePattern(pattern, flags))
