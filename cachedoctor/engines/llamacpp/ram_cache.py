"""The RAM prompt cache as far as its lines tell: ``saving prompt with length 2104, total state size = 61.4 MiB``."""

from __future__ import annotations

import msgspec

from cachedoctor.model import Mark

MAX_PROMPTS = 256
"""Prompts remembered by length."""


class RamCache(msgspec.Struct, gc=False):
    """The prompts that the RAM prompt cache is known to hold, by length."""

    saved: dict[int, Mark] = msgspec.field(default_factory=dict)
    """Length in tokens -> line that saved it. Emptied when any prompt is thrown out: which one is not printed."""
    prompts: int | None = None
    """How many it holds, as it last said."""

    def save(self, length: int, mark: Mark) -> None:
        """Remember a prompt that was saved."""
        self.saved.pop(length, None)
        self.saved[length] = mark
        if len(self.saved) > MAX_PROMPTS:
            del self.saved[next(iter(self.saved))]

    def held(self, length: int, before: int) -> Mark | None:
        """Line that saved a prompt of ``length`` tokens before line ``before``, or None."""
        mark = self.saved.get(length)
        return mark if mark is not None and mark.line < before else None

    def forget(self, length: int | None = None) -> None:
        """A prompt of this length left it; None: one of them did."""
        if length is None:
            self.saved.clear()
        else:
            self.saved.pop(length, None)
