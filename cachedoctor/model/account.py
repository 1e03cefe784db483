"""Where prompt tokens went, in rows that add up, and what the requests of each client took."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Count, Long

AccountRow = Literal["reused", "new", "client", "server", "together", "rounding", "unexplained", "undecided"]
"""``reused``: came from the cache. ``new``: never sent before at this place. ``client``: comes after what the client
changed. ``server``: the prefix was the same, and the server could not give it back. ``together``: requests with one
beginning were computed at once. ``rounding``: below a block, a batch, the distance of checkpoints. ``unexplained``:
the build had to reuse it, and did not. ``undecided``: the client changed it or the server
lost it, the log does not show which."""


class AccountEntry(msgspec.Struct, omit_defaults=True):
    """Tokens of one row that have one cause."""

    row: AccountRow
    kind: str | None
    """Name of the rule that says why; None where none does."""
    tokens: Long
    requests: Long
    """Requests that have such tokens; 0 where what tells of the tokens tells of no requests."""
    proof: Literal["kv events"] | None = None
    """What tells of them, where it is not the log or what was given of the requests."""


class Account(msgspec.Struct):
    """Where the prompt tokens of some requests went; its entries add up to ``prompt_tokens``."""

    scope: Literal["log", "server", "conversation", "client"]
    session: Count | None
    """None of the whole log."""
    thread: Count | None
    """Of a conversation, as requests name it."""
    client: str | None
    """Of a client: the address that asked."""
    requests: Long
    """Requests whose tokens are placed; 0 where that is not known."""
    not_placed: Long
    """Requests of which the log does not show how long the prompt was, or how much of it was reused."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """By row and kind, in the order of the rows and the most tokens first."""


ClientBy = Literal["session", "user", "salt", "system_prompt", "route", "address", "other", "unknown"]
"""What names a client, the surest first: ids of its session and of its user, the salt of its cache, the system prompt
(of request bodies); what comes before the interface in the path, and the address (of the log). ``other``: all clients
that are not listed. ``unknown``: requests of which nothing shows who sent them."""


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
    """Requests of which nothing shows how long the prompt was, or how much of it was reused."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """By row and kind, in the order of the rows and the most tokens first."""
