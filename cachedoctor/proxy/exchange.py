"""What the proxy knows of one request and its answer, and what it says of them. Knows no network and no file."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """What the user asked the proxy to do with what it sees."""

    record: str | None = None
    keep_text: bool = False
    record_size: int = 1 << 30
    """Bytes at which the file of records is put aside, once."""
    fixes: tuple[str, ...] = ()
    dry_run: bool = False
    tokenizer: str | None = None
    template: str | None = None


class Exchange(msgspec.Struct):
    """A request that has ended, as bytes."""

    sent: float
    """Seconds since 1970 when its head was read."""
    method: str
    path: str
    """Without the query, which can hold a key."""
    status: int
    seconds: float
    first_byte: float | None
    """Seconds until the first byte of the answer's body."""
    body: bytes | None
    """As it was sent on; None where it was not held."""
    coding: str = ""
    """Content-Encoding of the body."""
    answer: bytes = b""
    """What of the answer may say how long the prompt was."""
    answer_coding: str = ""
    edits: tuple[str, ...] = ()
    """What was changed in the body, in words."""
    fault: str = ""
    """Why it ended early, empty where it did not."""
    untold: str = ""
    """Why the body was not held."""
    reply: bytes = b""
    """The answer as the message that clients send back, JSON; where fixes are only tried and it is whole."""
    unfixed: str = ""
    """Why the body was sent on unchanged although a fix had changed it, empty where it was not."""


class Change(msgspec.Struct, omit_defaults=True):
    """What differs first between a request and the one before it in its conversation."""

    kind: str
    """As ``diff`` names it: ``appended``, ``billing-header`` ...; ``equal`` where nothing differs."""
    explanation: str
    place: str | None = None
    common: int | None = None
    """Tokens in front of it; estimated where no tokenizer was given."""
    client: str | None = None
    """Whose doing it is, where the prompts prove it."""
    advice: str | None = None


class Seen(msgspec.Struct, omit_defaults=True):
    """One request as it is told, one JSON object a line with ``-f jsonl``; unknown is left out."""

    sent: float
    path: str
    status: int
    seconds: float
    method: str = "POST"
    first_byte: float | None = None
    model: str | None = None
    conversation: int | None = None
    """Number that the requests of one conversation share, in the order in which they turned up."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    change: Change | None = None
    """None: the first request of its conversation, or it could not be compared."""
    recomputed: int | None = None
    """Tokens of the previous prompt that this request had computed again, by the counts of the answers."""
    edits: list[str] = []
    """What fixes changed in the body, or would have changed with ``--dry-run``."""
    dry_run: bool = False
    """The edits were only tried: the request passed as the client sent it."""
    would_save: int | None = None
    """Tokens that the fixes would have kept in the cache; with ``--dry-run`` only."""
    would_reuse: int | None = None
    """Tokens that would have been reused with the fixes in both requests; with ``--dry-run`` only."""
    unfixed: str = ""
    """Why the request passed without the edits that it was first sent with: the server refused them."""
    fault: str = ""
    """Why it ended early."""
    untold: str = ""
    """Why its prompt is not told."""
    is_prompt: bool = False
    notes: list[str] = []
    """What befell the recording."""
