"""What the proxy knows of one request and its answer, and what it says of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ProxyOptions(msgspec.Struct, frozen=True):
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
    sender: bytes = b""
    """Keyed digest of who sent it; goes into no line and no record."""


class Change(msgspec.Struct, omit_defaults=True):
    """What differs first between a request and the one before it in its conversation."""

    kind: str
    """As ``diff`` names it: ``appended``, ``billing-header`` ...; ``equal`` where nothing differs."""
    explanation: str
    place: str | None = None
    common: int | None = None
    """Tokens before it; estimated where no tokenizer was given."""
    client: str | None = None
    """Whose doing it is, where the prompts prove it."""
    advice: str | None = None


class PassedRequest(msgspec.Struct, omit_defaults=True):
    """One request that passed, a line of `cachedoctor proxy -f jsonl`. What is unknown, empty or false has no key."""

    sent: float
    """Seconds since 1970 when its head was read."""
    path: str
    """Of its address, without what comes after `?`; a segment that is not of an API is a hash, `#2d711642`."""
    status: int
    """Of the answer; 0 where there is none."""
    seconds: float
    """Until it ended."""
    method: str = "POST"
    """No key where it is POST."""
    first_byte: float | None = None
    """Seconds until the first byte of the answer's body."""
    model: str | None = None
    conversation: int | None = None
    """Number that the requests of one conversation share, in the order in which they turned up."""
    prompt_tokens: int | None = None
    """As the server counted them."""
    cached_tokens: int | None = None
    """Of these, reused, as the server counted them."""
    change: Change | None = None
    """None: the first request of its conversation, or it could not be compared."""
    recomputed: int | None = None
    """Tokens of the previous prompt that this request had recomputed, by the counts of the answers."""
    edits: list[str] = []
    """What fixes changed in the body, or with ``dry_run`` would have changed: name of the fix, colon, words."""
    dry_run: bool = False
    """The edits were only tried: the request passed as the client sent it."""
    would_save: int | None = None
    """Tokens that the fixes would have kept in the cache; with ``dry_run`` only."""
    would_reuse: int | None = None
    """Tokens that would have been reused with the fixes in both requests; with ``dry_run`` only."""
    unfixed: str = ""
    """Why the request passed without the edits that it was first sent with: the server refused them."""
    fault: str = ""
    """Why it ended early."""
    untold: str = ""
    """Why its prompt is not told."""
    is_prompt: bool = False
    """It held a prompt, or may have held one."""
    notes: list[str] = []
    """What befell the recording."""


class RecordedDetails(msgspec.Struct, omit_defaults=True):
    """Part of `usage`, in the form of the OpenAI API."""

    cached_tokens: int | None = None
    """Tokens that were reused."""


class RecordedUsage(msgspec.Struct, omit_defaults=True):
    """The server's counts, in the form of the OpenAI API, whatever its own; what it did not say has no key."""

    prompt_tokens: int | None = None
    prompt_tokens_details: RecordedDetails | None = None


class RecordedResponse(msgspec.Struct):
    """What is recorded of an answer."""

    model: str | None
    usage: RecordedUsage


class RecordedChange(msgspec.Struct):
    """What differs first between a request and the one before it in its conversation, without a text of either."""

    kind: str
    """As `diff` names it."""
    field: str | None
    """What varies in it; a length and a hash where it is the client's word."""
    place: str | None
    explanation: str


class Record(msgspec.Struct):
    """One request with a prompt: one line of the file that `cachedoctor proxy --record` writes."""

    recorder: Literal["cachedoctor proxy"]
    """The first key of every record."""
    version: Literal[1]
    texts: Literal["digests", "kept"]
    """Whether the body has stand-ins in place of its texts, or the texts (`--keep-text`)."""
    sent: float
    """Seconds since 1970 when its head was read."""
    endpoint: str
    """Path of its address; a segment that is not of an API is a hash."""
    status: int
    """Of the answer; 0 where there is none."""
    seconds: float
    """Until it ended."""
    fault: str
    """Why it ended early, empty where it did not."""
    response: RecordedResponse
    conversation: int | None
    """Number that the requests of one conversation share."""
    recomputed: int | None
    """Tokens of the previous prompt that this request had recomputed."""
    change: RecordedChange | None
    """None: nothing differs, the first request of its conversation, or it could not be compared."""
    edits: list[str]
    """What fixes changed in the body, or with `dry_run` would have changed."""
    dry_run: bool
    """The edits were only tried: the body is as the client sent it. Records of older versions lack this key."""
    unfixed: str
    """Why the body was sent on without edits, empty where it was not. Records of older versions lack this key."""
    body: dict[str, Any]
    """As it was sent on, with its edits."""
