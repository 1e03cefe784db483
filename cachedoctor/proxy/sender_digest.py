"""Who sent a request, as a keyed digest: what one client said is put into no request of another. Knows no HTTP library.

A sender is all that may tell clients apart: every header field that by its name holds a key, a session, a user or an
account, the whole address (some servers take keys there), and the address that the connection came from. The key of the
digest is drawn anew in each process and is written nowhere; what is digested is not kept.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable

_WORDS = re.compile(r"[^a-z0-9]+")
_TELLING = frozenset(
    {"auth", "authorization", "authentication", "authenticated", "authuser", "apikey", "key", "token", "jwt", "bearer"}
    | {"secret", "password", "credential", "credentials", "cookie", "salt", "assertion", "cert", "certificate"}
    | {"user", "username", "uid", "login", "email", "identity", "identifier", "principal", "subject", "remote"}
    | {"session", "conversation", "thread", "chat", "previous"}
    | {"account", "organization", "org", "project", "tenant", "customer", "team", "workspace", "forwarded", "ip"}
)
"""Words of the names of header fields, and of keys of a body, that tell clients or their sessions apart."""
_OTHER = frozenset({"idempotency", "template"})
"""Words of names that are about one request: ``Idempotency-Key``, ``chat_template``."""
_COUNTING = "/count_tokens"
"""End of the path at which a client has a request counted that it then sends."""


def tells_sender(name: str) -> bool:
    """Whether a header field or a key of a body is about who sends: ``X-Api-Key``, ``user``, ``session_id``."""
    words = _WORDS.split(name.lower())
    is_telling = not _TELLING.isdisjoint(words) or not _TELLING.isdisjoint(word.removesuffix("id") for word in words)
    return is_telling and _OTHER.isdisjoint(words)


class SenderDigest:
    """Makes digests that are worth nothing outside of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, fields: Iterable[tuple[bytes, bytes]], target: str, peer: str) -> bytes:
        """Digest of who sends a request.

        Args:
            fields: of its head, as they were sent.
            target: of its request line, with all that stands behind ``?``.
            peer: address of the other end of the connection, without port.
        """
        found = hashlib.blake2b(key=self._key, digest_size=32)
        path, mark, query = target.partition("?")
        telling = sorted((name.lower(), value) for name, value in fields if tells_sender(name.decode("latin-1")))
        address = (path.removesuffix(_COUNTING) + mark + query).encode("utf-8", "surrogateescape")
        for part in (peer.encode(), address, *(piece for field in telling for piece in field)):
            found.update(b"%d:" % len(part) + part)
        return found.digest()
