"""What the proxy knows of one request and its answer, and what it reports about them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ProxyOptions(msgspec.Struct, frozen=True):
    """Options that the user set for the proxy."""

    record: str | None = None
    keep_text: bool = False
    record_size: int = 1 << 30
    """Bytes at which the record file is rotated, once."""
    fixes: tuple[str, ...] = ()
    dry_run: bool = False
    tokenizer: str | None = None
    template: str | None = None


class Exchange(msgspec.Struct):
    """A finished request, as bytes."""

    sent: float
    """Time when the head of the request was read, in seconds since 1970."""
    method: str
    path: str
    """Without the query, which can hold a key."""
    status: int
    seconds: float
    first_byte: float | None
    """Seconds until the first byte of the response body."""
    body: bytes | None
    """Body as forwarded; None if it was not held."""
    coding: str = ""
    """Content-Encoding of the body."""
    answer: bytes = b""
    """The parts of the answer that may show the prompt length."""
    answer_coding: str = ""
    edits: tuple[str, ...] = ()
    """What was changed in the body, in words."""
    fault: str = ""
    """Why the request ended early; empty if it did not end early."""
    untold: str = ""
    """Why the body was not held."""
    reply: bytes = b""
    """The answer as the message that clients send back (JSON); only in dry runs and if it is complete."""
    unfixed: str = ""
    """Why the original body was forwarded although a fix had changed it; empty if it was not."""
    sender: bytes = b""
    """Keyed digest of the sender; never printed or recorded."""


class Change(msgspec.Struct, omit_defaults=True):
    """First difference between a request and the previous request of its conversation."""

    kind: str
    """Kind of the difference, named as in ``diff``: ``appended``, ``billing-header`` ...; ``equal`` if nothing
    differs."""
    explanation: str
    place: str | None = None
    common: int | None = None
    """Tokens before the difference; estimated if no tokenizer was given."""
    client: str | None = None
    """Client that writes the differing text, if the prompts prove it."""
    advice: str | None = None


class PassedRequest(msgspec.Struct, omit_defaults=True):
    """One forwarded request: a line of ``cachedoctor proxy -f jsonl``. Unknown, empty and false values have no key."""

    sent: float
    """Time when the head of the request was read, in seconds since 1970."""
    path: str
    """Path of the request, without the part after ``?``; a segment that is not part of a known API is hashed,
    ``#2d711642``."""
    status: int
    """Status of the response; 0 if there was no response."""
    seconds: float
    """Seconds until the request ended."""
    method: str = "POST"
    """HTTP method; no key for POST."""
    first_byte: float | None = None
    """Seconds until the first byte of the response body."""
    model: str | None = None
    conversation: int | None = None
    """Number of the conversation, in the order of first appearance; all its requests have the same number."""
    prompt_tokens: int | None = None
    """Prompt tokens as the server counted them."""
    cached_tokens: int | None = None
    """Reused tokens as the server counted them."""
    change: Change | None = None
    """First difference from the previous prompt; None for the first request of a conversation, or if the prompts could
    not be compared."""
    recomputed: int | None = None
    """Tokens of the previous prompt that were recomputed for this request, according to the counts in the responses."""
    edits: list[str] = []
    """Changes by fixes in the body, as "fix name: description"; with ``dry_run``, changes that the fixes would have
    made."""
    dry_run: bool = False
    """True if the edits were only simulated and the request was forwarded unchanged."""
    would_save: int | None = None
    """Tokens that the fixes would have kept in the cache; with ``dry_run`` only."""
    would_reuse: int | None = None
    """Tokens that would have been reused with the fixes in both requests; with ``dry_run`` only."""
    unfixed: str = ""
    """Why the request was forwarded again without its edits: the server rejected them."""
    fault: str = ""
    """Why the request ended early."""
    untold: str = ""
    """Why the prompt was not checked."""
    is_prompt: bool = False
    """True if the request contains a prompt, or may contain one."""
    notes: list[str] = []
    """Problems of the recording."""


class RecordedDetails(msgspec.Struct, omit_defaults=True):
    """Part of `usage`, in the form of the OpenAI API."""

    cached_tokens: int | None = None
    """Tokens that were reused."""


class RecordedUsage(msgspec.Struct, omit_defaults=True):
    """The server's counts, in the form of the OpenAI API even if the server uses another form; a count that the server
    did not send has no key."""

    prompt_tokens: int | None = None
    prompt_tokens_details: RecordedDetails | None = None


class RecordedResponse(msgspec.Struct):
    """Recorded parts of a response."""

    model: str | None
    usage: RecordedUsage


class RecordedChange(msgspec.Struct):
    """First difference between a request and the previous request of its conversation, without text of the two
    requests."""

    kind: str
    """Kind of the difference, named as in ``diff``."""
    field: str | None
    """Name of the part that varies; length and hash if the name is text from the client."""
    place: str | None
    explanation: str


class Record(msgspec.Struct):
    """One recorded request with a prompt: a line of the file that ``cachedoctor proxy --record`` writes."""

    recorder: Literal["cachedoctor proxy"]
    """The first key of every record."""
    version: Literal[1]
    texts: Literal["digests", "kept"]
    """Whether the body has placeholders for its texts, or the real texts (`--keep-text`)."""
    sent: float
    """Time when the head of the request was read, in seconds since 1970."""
    endpoint: str
    """Path of the request; a segment that is not part of a known API is hashed."""
    status: int
    """Status of the response; 0 if there was no response."""
    seconds: float
    """Seconds until the request ended."""
    fault: str
    """Why the request ended early; empty if it did not end early."""
    response: RecordedResponse
    conversation: int | None
    """Number of the conversation; all its requests have the same number."""
    recomputed: int | None
    """Tokens of the previous prompt recomputed for this request."""
    change: RecordedChange | None
    """First difference from the previous prompt; None if nothing differs, if the request is the first of its
    conversation, or if the prompts could not be compared."""
    edits: list[str]
    """Changes by fixes in the body; with ``dry_run``, changes that the fixes would have made."""
    dry_run: bool
    """True if the edits were only simulated and the body is as the client sent it. Records of older versions lack this
    key."""
    unfixed: str
    """Why the request was sent again without edits; empty if it was not sent again. Records of older versions lack this
    key."""
    body: dict[str, Any]
    """Body as forwarded, after the edits."""
