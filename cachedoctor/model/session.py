"""One life of a server process, and its settings. Knows no engine, no rule, no file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Memory = Literal["attention", "swa", "hybrid", "recurrent"]


class Setting(msgspec.Struct):
    """A fact about the server and the line that says so."""

    value: Any
    line: int | None
    text: bytes = b""
    """The line itself, where a finding may show it."""


class Session(msgspec.Struct):
    """One life of a server process. Unknown is None."""

    index: int
    path: str
    origin: str | None = None
    """Router port, compose service, or None."""
    engine: str = "llama.cpp"
    build: int | None = None
    build_min: int | None = None
    """Oldest build that writes all the wordings seen."""
    build_max: int | None = None
    build_source: str | None = None
    """"line", "option", "wording", or None."""
    model: str | None = None
    memory: Memory | None = None
    n_slots: int | None = None
    n_ctx_slot: int | None = None
    """Context of one slot in tokens."""
    settings: dict[str, Setting] = msgspec.field(default_factory=dict)
    first_line: int = 1
    last_line: int = 1
    seen: set[str] = msgspec.field(default_factory=set)
    """Ids of the messages that occurred: what this log is able to show."""
    n_requests: int = 0
    window: int | None = None
    """Sliding window in tokens as the request lines print it; 0 or 1 for a model without one."""
    starts_cold: bool = False
    """The start of the process is in the log, so that its slots were empty."""

    def setting(self, name: str) -> Any:
        """Value of a setting, or None when unknown."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def at_least(self, build: int) -> bool | None:
        """Whether the server is of ``build`` or newer; None when the log leaves it open."""
        if self.build is not None:
            return self.build >= build
        if self.build_min is not None and self.build_min >= build:
            return True
        if self.build_max is not None and self.build_max < build:
            return False
        return None
