"""Asks a running llama-server one thing: bounded in size and time, every fault one line. Knows HTTP, no endpoint."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from cachedoctor.http_requests import FAULTS, Answer, TooLargeError, ask, connection
from cachedoctor.model import CacheDoctorError

TIMEOUT_SECONDS = 30.0
"""For one step of an answer; a server that is reading a prompt of 250,000 tokens still tokenises within a second."""
DEADLINE_SECONDS = 60.0
"""For a whole answer, however many steps it comes in."""
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes; 250,000 tokens with their pieces are about 10 MiB."""
_MAX_REASON = 200
"""Code points of what the server says of an error."""
_HINTS = {401: "the server wants an API key", 503: "the model is still loading: try again"}


def post(url: str, value: Any) -> Any:
    """Post ``value`` as JSON and give what was answered, decoded.

    A proxy of the environment is not asked, and nothing is followed elsewhere: this is the user's own server.

    Raises:
        CacheDoctorError: it cannot be reached, takes too long, or answers an error or no JSON.
    """
    try:
        parts = urlsplit(url)
        opened = connection(parts, TIMEOUT_SECONDS)
    except FAULTS as error:
        raise CacheDoctorError(f"{url} is no address: {error}", "give it as http://host:port") from None
    body, headers = json.dumps(value).encode(), {"Content-Type": "application/json"}
    try:
        answer = ask(opened, "POST", parts.path or "/", body, headers, seconds=DEADLINE_SECONDS, most_bytes=MAX_ANSWER)
    except TooLargeError:
        raise CacheDoctorError(f"{url} answered more than {MAX_ANSWER >> 20} MiB", "is this a llama-server?") from None
    except FAULTS as error:
        raise CacheDoctorError(f"cannot reach {url}: {_reason(error)}", "is llama-server running there?") from None
    if answer.status != 200:
        raise _refused(url, answer)
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise CacheDoctorError(f"{url} did not answer with JSON", "is this a llama-server?") from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    return (str(error) or type(error).__name__)[:_MAX_REASON]


def _refused(url: str, answer: Answer) -> CacheDoctorError:
    """What an error of the server says: its own words, where it has some."""
    try:
        said = json.loads(answer.body)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        said = answer.reason
    hint = _HINTS.get(answer.status, "is this a llama-server with a model loaded?")
    return CacheDoctorError(f"{url} answered {answer.status} {str(said)[:_MAX_REASON]}", hint)
