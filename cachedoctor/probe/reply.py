"""What an answer says: how long the prompt was, what was reused of it, or why it was refused.

Knows answers of chat endpoints. Knows no question.
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.metrics.usage import Meta, Response, Timings, Usage, decoded, told
from cachedoctor.model import CacheDoctorError
from cachedoctor.probe.connection import Answer, Connection


class Reply(NamedTuple):
    """Counts are None where the server does not say them."""

    prompt_tokens: int | None
    reused_tokens: int | None
    seconds: float
    refused: str | None = None
    """Why, in the server's words, masked."""
    too_long: bool = False
    """The prompt does not fit into the context."""
    id: str | None = None
    """Of the answer, which every one has for itself, unless it comes out of a store of answers."""
    left_out: bool = False
    """It has a usage in which nothing stands of what was reused."""


def read(at: Connection, answer: Answer, least_tokens: int = 1) -> Reply:
    """Read an answer; counts of a prompt of fewer tokens than the least that it can have are no counts.

    Raises:
        CacheDoctorError: it is no answer of a chat endpoint.
    """
    told_error = isinstance(answer.value, dict) and "error" in answer.value and "choices" not in answer.value
    if answer.status != 200 or told_error:
        said = _message(answer)
        lower = said.lower()
        long = ("exceed" in lower and "context" in lower) or "maximum context length" in lower
        return Reply(None, None, answer.seconds, f"{answer.status}: {at.quote(said) or 'no words'}", long)
    if answer.body.lstrip()[:5] == b"data:":
        raise CacheDoctorError(
            f"{at.url}: the answer is a stream, which was not asked for", "ask the server itself, or mend the gateway"
        )
    if not isinstance(answer.value, dict) or not {"choices", "content", "usage"} & answer.value.keys():
        said = at.quote(answer.body[:200].decode("utf-8", "replace")) or "nothing"
        raise CacheDoctorError(
            f"{at.url}: the answer is none of a chat: {said}", "is there an API behind this address?"
        )
    response = decoded(answer.body, Response) or Response()
    found = told(decoded(response.usage, Usage), decoded(response.meta_info, Meta), decoded(response.timings, Timings))
    if found is None or found.prompt_tokens < least_tokens:
        return Reply(None, None, answer.seconds, id=_id(answer))
    left_out = found.cached_tokens is None and b"cached_tokens" not in bytes(response.usage)
    return Reply(found.prompt_tokens, found.cached_tokens, answer.seconds, id=_id(answer), left_out=left_out)


def _id(answer: Answer) -> str | None:
    found = answer.value.get("id")
    return found if isinstance(found, str) and found else None


def _message(answer: Answer) -> str:
    error = answer.value.get("error", answer.value) if isinstance(answer.value, dict) else answer.value
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return str(error) if error else answer.body[:200].decode("utf-8", "replace")
