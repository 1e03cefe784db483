"""Stand-ins for prompts: as long as the prompt, and with an earlier stand-in as much in common as the prompts have.

How far prompts begin alike is all that the analysis reads of them, but for the name of a header. Knows text; must not
know where it comes from. Memory is bounded: 256 prompts, 16 MiB of them.
"""

from __future__ import annotations

import re
from collections import deque

from cachedoctor.knowledge.texts import common_prefix

_PROMPTS = 256
_CHARACTERS = 16 << 20
_FILLER = "*"
"""Nothing that the header begins with: else a stand-in would have that in common with it."""
_OTHERS = "abcdefghijklmnopqrstuvwyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""Characters that tell a stand-in from earlier ones where the prompts diverge."""
_HEADER = re.compile("x-anthropic-billing-header:?")
_HEAD = 8192
"""Characters in which that header is one."""


class StandIns:
    """The latest prompts of a log, and what stands for them in the redacted one."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, str]] = deque()
        self._size = 0

    def give(self, prompt: str) -> str:
        """Return the stand-in, which holds nothing of ``prompt`` but Claude Code's header by its name."""
        common = [common_prefix(prompt, other) for other, _ in self._recent]
        most = max(common, default=0)
        begin = next((text[:most] for (_, text), n in zip(self._recent, common, strict=True) if n == most), "")
        taken = {text[most : most + 1] for (_, text), n in zip(self._recent, common, strict=True) if n == most}
        text = begin
        if len(prompt) > most:
            first = next((char for char in (_FILLER, *_OTHERS) if char not in taken), _FILLER)
            text += first + _FILLER * (len(prompt) - most - 1)
        for header in _HEADER.finditer(prompt[:_HEAD]):
            text = text[: header.start()] + header[0] + text[header.end() :]
        self._keep(prompt, text)
        return text

    def _keep(self, prompt: str, text: str) -> None:
        self._recent.append((prompt, text))
        self._size += len(prompt)
        while len(self._recent) > _PROMPTS or self._size > _CHARACTERS:
            self._size -= len(self._recent.popleft()[0])
