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
    """Seconds since 1970 when its head was read."""
    method: str
    path: str
    """Without the query, which can hold a key."""
    status: int
    seconds: float
    first_byte: float | None
    """Seconds until the first byte of the answer's body."""
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
    """Why it ended early; empty if it did not."""
    untold: str = ""
    """Why the body was not held."""
    reply: bytes = b""
    """The answer as the message that clients send back (JSON); only in dry runs and if it is complete."""
    unfixed: str = ""
    """Why the original body was forwarded although a fix had changed it; empty if it was not."""
    sender: bytes = b""
    """Keyed digest of the sender; never printed or recorded."""


class Change(msgspec.Struct, omit_defaults=True):
    """What differs first between a request and the one before it in its conversation."""

    kind: str
    """Kind as ``diff`` names it: ``appended``, ``billing-header`` ...; ``equal`` if nothing differs."""
    explanation: str
    place: str | None = None
    common: int | None = None
    """Tokens before it; estimated where no tokenizer was given."""
    client: str | None = None
    """Client that writes it, if the prompts prove it."""
    advice: str | None = None


class PassedRequest(msgspec.Struct, omit_defaults=True):
    """One request that passed, a line of `cachedoctor proxy -f jsonl`. What is unknown, empty or false has no key."""

    sent: float
    """Seconds since 1970 when its head was read."""
    path: str
    """Path of its address, without the part after `?`; a segment that is not part of a known API is hashed,
    `#2d711642`."""
    status: int
    """Status of the answer; 0 if there is none."""
    seconds: float
    """Seconds until it ended."""
    method: str = "POST"
    """No key if it is POST."""
    first_byte: float | None = None
    """Seconds until the first byte of the answer's body."""
    model: str | None = None
    conversation: int | None = None
    """Number shared by all requests of one conversation, in order of first appearance."""
    prompt_tokens: int | None = None
    """Prompt tokens as the server counted them."""
    cached_tokens: int | None = None
    """Reused tokens as the server counted them."""
    change: Change | None = None
    """None: the first request of its conversation, or it could not be compared."""
    recomputed: int | None = None
    """Tokens of the previous prompt that were recomputed for this request, by the answers' counts."""
    edits: list[str] = []
    """What fixes changed in the body, or would have changed with ``dry_run``, as "fix name: description"."""
    dry_run: bool = False
    """The edits were only simulated: the request was forwarded unchanged."""
    would_save: int | None = None
    """Tokens that the fixes would have kept in the cache; with ``dry_run`` only."""
    would_reuse: int | None = None
    """Tokens that would have been reused with the fixes in both requests; with ``dry_run`` only."""
    unfixed: str = ""
    """Why the request was forwarded again without its edits: the server rejected them."""
    fault: str = ""
    """Why it ended early."""
    untold: str = ""
    """Why its prompt was not checked."""
    is_prompt: bool = False
    """True if it contains a prompt, or may contain one."""
    notes: list[str] = []
    """Problems of the recording."""


class RecordedDetails(msgspec.Struct, omit_defaults=True):
    """Part of `usage`, in the form of the OpenAI API."""

    cached_tokens: int | None = None
    """Tokens that were reused."""


class RecordedUsage(msgspec.Struct, omit_defaults=True):
    """The server's counts, in the form of the OpenAI API, whatever its own; a count that it did not send has no key."""

    prompt_tokens: int | None = None
    prompt_tokens_details: RecordedDetails | None = None


class RecordedResponse(msgspec.Struct):
    """What is recorded of an answer."""

    model: str | None
    usage: RecordedUsage


class RecordedChange(msgspec.Struct):
    """What differs first between a request and the one before it in its conversation, without a text of either."""

    kind: str
    """Kind as `diff` names it."""
    field: str | None
    """What varies in it; length and hash if it is text from the client."""
    place: str | None
    explanation: str


class Record(msgspec.Struct):
    """One recorded request with a prompt, as one line of the file that `cachedoctor proxy --record` writes."""

    recorder: Literal["cachedoctor proxy"]
    """The first key of every record."""
    version: Literal[1]
    texts: Literal["digests", "kept"]
    """Whether the body has placeholders for its texts, or the real texts (`--keep-text`)."""
    sent: float
    """Seconds since 1970 when its head was read."""
    endpoint: str
    """Path of its address; a segment that is not of an API is a hash."""
    status: int
    """Status of the answer; 0 if there is none."""
    seconds: float
    """Seconds until it ended."""
    fault: str
    """Why it ended early; empty if it did not."""
    response: RecordedResponse
    conversation: int | None
    """Number that the requests of one conversation share."""
    recomputed: int | None
    """Tokens of the previous prompt recomputed for this request."""
    change: RecordedChange | None
    """None: nothing differs, the first request of its conversation, or it could not be compared."""
    edits: list[str]
    """What fixes changed in the body, or with `dry_run` would have changed."""
    dry_run: bool
    """The edits were only simulated: the body is as the client sent it. Records of older versions lack this key."""
    unfixed: str
    """Why the body was forwarded without edits; empty if it was not. Records of older versions lack this key."""
    body: dict[str, Any]
    """Body as forwarded, with its edits."""
