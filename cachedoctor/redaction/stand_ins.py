"""Stable names for secrets, and stand-ins for prompts with the same lengths and common prefixes."""

from __future__ import annotations

import secrets
from collections import deque
from hashlib import blake2b

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix

_NUMBERED = 1 << 16
"""Maximum numbered secrets; later ones are named by a keyed hash, so that a log of any size takes the same memory."""
_LETTERS = b"ghkpqvwxz"
"""Letters of such a name: no digits and no vowels, so that it is not a number, no date and no word."""
_LENGTH = 12


class StandInNames:
    """Gives ``<path-1>``, ``<path-2>``, ``<host-1>`` ... in the order in which the secrets are met."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers: dict[bytes, int] = {}
        self.counts: dict[str, int] = {}
        """Number of different secrets of each kind that were numbered."""

    def name(self, kind: str, secret: bytes) -> bytes:
        """Return the name of ``secret`` without brackets, ``path-1``."""
        digest = blake2b(kind.encode() + b"\0" + secret, digest_size=16, key=self._key).digest()
        number = self._numbers.get(digest)
        if number is None:
            if len(self._numbers) >= _NUMBERED:
                return kind.encode() + b"-" + bytes(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_LENGTH])
            number = self._numbers[digest] = self.counts[kind] = self.counts.get(kind, 0) + 1
        return b"%s-%d" % (kind.encode(), number)

    def give(self, kind: str, secret: bytes) -> bytes:
        """Return the token of ``secret``, ``<path-1>``; empty for an empty secret."""
        secret = secret.strip()  # blanks around it make no other secret
        return b"<%s>" % self.name(kind, secret) if secret else b""


_PROMPTS = 256
_CHARACTERS = 16 << 20
_FILLER = "*"
"""Different from the header's first characters; otherwise a stand-in would share them."""
_OTHERS = "abcdefghijklmnopqrstuvwyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""Characters that distinguish a stand-in from earlier ones where the prompts diverge."""
_HEADER = late("x-anthropic-billing-header:?")
_HEAD = 8192
"""Characters at the start of a prompt within which that header is real."""


class StandIns:
    """The latest prompts of a log, and their replacements in the redacted log."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, str]] = deque()
        self._size = 0

    def give(self, prompt: str) -> str:
        """Return the stand-in, which contains nothing of ``prompt`` except the name of Claude Code's header."""
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
