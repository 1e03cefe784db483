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
    """Name of the rule that explains it; None if no rule does."""
    tokens: Long
    requests: Long
    """Requests with such tokens; 0 if the source of the token counts does not count requests."""
    proof: Literal["kv events"] | None = None
    """Source of the token counts, if it is neither the log nor the given requests."""


class Account(msgspec.Struct):
    """Where the prompt tokens of some requests went; its entries add up to ``prompt_tokens``."""

    scope: Literal["log", "server", "conversation", "client"]
    session: Count | None
    """None for the whole log."""
    thread: Count | None
    """Conversation that it is about, named as in its requests."""
    client: str | None
    """Address of the client that it is about."""
    requests: Long
    """Requests whose tokens are assigned to a row; 0 if unknown."""
    not_placed: Long
    """Requests whose prompt length or reuse the log does not show."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """Entries by row and kind, in the order of the rows, the most tokens first."""


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
    """Where the prompt tokens of a client's requests went; its entries add up to ``prompt_tokens``."""

    by: ClientBy
    name: str | None
    """None for ``other`` and ``unknown``."""
    clients: Long
    """Number of clients: 1; for ``other`` those that are not listed, as far as they were counted; 0 for ``unknown``."""
    requests: Long
    """Requests whose tokens are assigned to a row."""
    not_placed: Long
    """Requests whose prompt length or reuse is unknown."""
    prompt_tokens: Long
    entries: list[AccountEntry]
    """Entries by row and kind, in the order of the rows, the most tokens first."""
