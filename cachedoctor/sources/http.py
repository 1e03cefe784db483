"""Fetches a page: ``GET http://host:8000/metrics``. Knows addresses and answers; must not know what is in them."""

from __future__ import annotations

import base64
import http
from urllib.parse import SplitResult, unquote, urlsplit

from cachedoctor.http_requests import FAULTS, TooLargeError, ask, connection
from cachedoctor.sources.base import SourceError

ANSWER_SECONDS = 10.0
"""For one page, from the first byte asked to the last byte read."""
MAX_PAGE = 64 * 1024 * 1024
"""Bytes; /metrics of vLLM has about 50 KB for each engine."""
_HINTS = {
    400: "it does not understand what it is asked for; labels are written as in --match 'job=\"vllm\"'",
    401: "it wants credentials: http://USER:PASSWORD@HOST",
    403: "it wants credentials: http://USER:PASSWORD@HOST",
    404: "is there /metrics, or Prometheus, at this address?",
    503: "it is starting, or busy: try again",
}


def shown(url: str) -> str:
    """Write an address as it may be shown: without credentials and query."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{host}{parts.path}"


def get(url: str, seconds: float = ANSWER_SECONDS) -> bytes:
    """Return the page at an address; credentials in it are sent as basic authentication.

    Raises:
        SourceError: there is none, it takes too long, it is too large, or the server answers with an error.
    """
    name = shown(url)
    try:
        parts = urlsplit(url)
        opened = connection(parts, seconds)
    except FAULTS:
        raise SourceError(f"{name}: is no address", "write it as http://HOST:PORT/metrics") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "*/*", "User-Agent": "cachedoctor", **_credentials(parts)}
    try:
        answer = ask(opened, "GET", target, None, headers, seconds=seconds, most_bytes=MAX_PAGE)
    except TooLargeError:
        raise SourceError(
            f"{name}: answered with more than {MAX_PAGE >> 20} MiB", "ask for less, with --match"
        ) from None
    except TimeoutError:
        hint = "it is busy, or is something else"
        raise SourceError(f"{name}: no whole answer within {seconds:.0f} s", hint) from None
    except FAULTS as fault:
        what = getattr(fault, "strerror", None) or str(fault)[:100] or type(fault).__name__
        raise SourceError(f"{name}: cannot be fetched ({what})", "is a server running there?") from None
    if answer.status != http.HTTPStatus.OK:
        hint = _HINTS.get(answer.status, "look at it with curl")
        raise SourceError(f"{name}: answered {answer.status} {answer.reason[:60]}", hint)
    return answer.body


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
