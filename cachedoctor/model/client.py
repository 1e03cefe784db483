"""Which client a request belongs to, and what the requests of each client took."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.account import AccountEntry
from cachedoctor.model.bounds import Long

ClientBy = Literal["session", "user", "salt", "system_prompt", "route", "address", "other", "unknown"]
"""What names a client, the surest first: ids of its session and of its user, the salt of its cache, the system prompt
(of request bodies); what stands before the interface in the path, and the address (of the log). ``other``: all clients
that are not listed. ``unknown``: requests of which nothing tells who sent them."""


class ClientName(msgspec.Struct, frozen=True):
    """A client, as far as anything tells."""

    by: ClientBy
    name: str
    """Salts and system prompts are hashed."""


class ClientAccount(msgspec.Struct):
    """Where the prompt tokens of a client's requests went; its entries add up to ``prompt_tokens``."""

    by: ClientBy
    name: str | None
    """None of ``other`` and ``unknown``."""
    clients: Long
    """How many clients these are: 1; of ``other`` those that are not listed, as far as they were counted; 0 of
    ``unknown``."""
    requests: Long
    """Requests whose tokens are placed."""
    not_placed: Long
    """Requests of which nothing says how long the prompt was, or how much of it was reused."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """By row and kind, in the order of the rows and the most tokens first."""
