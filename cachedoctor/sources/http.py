"""Fetches a page: ``GET http://host:8000/metrics``. Knows addresses and answers; must not know what is in them."""

from __future__ import annotations

import base64
import http.client
import time
from urllib.parse import SplitResult, unquote, urlsplit

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.sources.base import SourceError

ANSWER_SECONDS = 10.0
"""For one page, from the first byte asked to the last byte read."""
MAX_PAGE = 64 * 1024 * 1024
"""Bytes; /metrics of vLLM has about 50 KB for each engine."""
_PIECE = 64 * 1024
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


@pipes_may_break()
def get(url: str, seconds: float = ANSWER_SECONDS) -> bytes:
    """Return the page at an address; credentials in it are sent as basic authentication.

    Raises:
        SourceError: there is none, it takes too long, it is too large, or the server answers with an error.
    """
    name = shown(url)
    deadline = time.monotonic() + seconds
    try:
        parts = urlsplit(url)
        connection = _connection(parts, seconds)
    except (ValueError, http.client.InvalidURL):
        raise SourceError(f"{name}: is no address", "write it as http://HOST:PORT/metrics") from None
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "*/*", "User-Agent": "cachedoctor", **_credentials(parts)})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            hint = _HINTS.get(answer.status, "look at it with curl")
            raise SourceError(f"{name}: answered {answer.status} {answer.reason[:60]}", hint)
        return _read(answer, name, deadline, seconds)
    except TimeoutError:
        raise _slow(name, seconds) from None
    except (OSError, http.client.HTTPException, ValueError) as fault:
        what = getattr(fault, "strerror", None) or str(fault)[:100] or type(fault).__name__
        raise SourceError(f"{name}: cannot be fetched ({what})", "is a server running there?") from None
    finally:
        connection.close()


def _connection(parts: SplitResult, seconds: float) -> http.client.HTTPConnection:
    if not parts.hostname:
        raise ValueError
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=seconds)


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _read(answer: http.client.HTTPResponse, name: str, deadline: float, seconds: float) -> bytes:
    found = bytearray()
    while piece := answer.read1(_PIECE):
        found += piece
        if len(found) > MAX_PAGE:
            raise SourceError(f"{name}: answered with more than {MAX_PAGE >> 20} MiB", "ask for less, with --match")
        if time.monotonic() > deadline:
            raise _slow(name, seconds)
    return bytes(found)


def _slow(name: str, seconds: float) -> SourceError:
    return SourceError(f"{name}: no whole answer within {seconds:.0f} s", "it is busy, or is something else")
