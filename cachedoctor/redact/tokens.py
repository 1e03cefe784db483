"""Stable names for secrets: the same secret gets the same token within one run. Knows nothing of what a secret is."""

from __future__ import annotations

import secrets
from hashlib import blake2b

_NUMBERED = 1 << 16
"""Secrets that are numbered; later ones are named by a keyed hash, so that a log of any size takes the same memory."""
_LETTERS = b"ghkpqvwxz"
"""Letters of such a name: no digits and no vowels, so that it is no number, no date and no word."""
_LENGTH = 12


class Tokens:
    """Gives ``<path-1>``, ``<path-2>``, ``<host-1>`` ... in the order in which the secrets are met."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers: dict[bytes, int] = {}
        self.counts: dict[str, int] = {}
        """How many different secrets of each kind were numbered."""

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
        """Return the token of ``secret``, ``<path-1>``; nothing for nothing."""
        secret = secret.strip()  # blanks around it make no other secret
        return b"<%s>" % self.name(kind, secret) if secret else b""
