"""Where prompt tokens went, in rows that add up, and how many the requests of each client used."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Count, Long

AccountRow = Literal["reused", "new", "client", "server", "together", "rounding", "unexplained", "undecided"]
"""``reused``: came from the cache. ``new``: never sent before at this place. ``client``: comes after what the client
changed. ``server``: the prefix was the same, but the server could not reuse it. ``together``: requests with the same
start were computed at the same time. ``rounding``: less than a block, a batch or the checkpoint distance.
``unexplained``: the build had to reuse it, and did not. ``undecided``: the client changed it or the server lost it, the
log does not show which."""


class AccountEntry(msgspec.Struct, omit_defaults=True):
    """Tokens of one row that have one cause."""

    row: AccountRow
    kind: str | None
    """Name of the rule that explains the tokens; None if no rule explains them."""
    tokens: Long
    requests: Long
    """Requests with such tokens; 0 if the source of the token counts does not count requests."""
    proof: Literal["kv events"] | None = None
    """Source of the token counts, if it is neither the log nor the given requests."""


class Account(msgspec.Struct):
    """What became of the prompt tokens of some requests; the entries add up to ``prompt_tokens``."""

    scope: Literal["log", "server", "conversation", "client"]
    session: Count | None
    """Session of the account; None for the whole log."""
    thread: Count | None
    """Conversation of the account, numbered as in its requests."""
    client: str | None
    """Address of the client of the account."""
    requests: Long
    """Requests whose tokens are in the entries; 0 if the number is unknown."""
    not_placed: Long
    """Requests whose prompt length or reuse the log does not show."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """Entries by row and kind, in the order of the rows; within a row, the entry with most tokens first."""


ClientBy = Literal["session", "user", "salt", "system_prompt", "route", "address", "other", "unknown"]
"""What identifies a client, most certain first: session id, user id, cache salt, system prompt (request bodies); the
path prefix before the API path, and the address (log). ``other``: all clients that are not listed. ``unknown``:
requests of which nothing shows who sent them."""


class ClientName(msgspec.Struct, frozen=True):
    """A client, as far as it is known."""

    by: ClientBy
    name: str
    """Salts and system prompts are hashed."""


class ClientAccount(msgspec.Struct):
    """What became of the prompt tokens of one client; the entries add up to ``prompt_tokens``."""

    by: ClientBy
    name: str | None
    """Name of the client; None for ``other`` and ``unknown``."""
    clients: Long
    """Number of clients: 1. For ``other``: the clients that are not listed, as far as they were counted. For
    ``unknown``: 0."""
    requests: Long
    """Requests whose tokens are in the entries."""
    not_placed: Long
    """Requests whose prompt length or reuse is unknown."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """Entries by row and kind, in the order of the rows; within a row, the entry with most tokens first."""
