"""HTTP requests whose answers are bounded in bytes and in seconds."""

from __future__ import annotations

import base64
import contextlib
import http
import http.client
import socket
import threading
from email.message import Message
from time import monotonic
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.knowledge.engines import LABELS_EXAMPLE

FAULTS = (OSError, http.client.HTTPException, ValueError)
"""Errors of a request other than TooLargeError: no connection, a broken or late answer, an invalid header."""
_PIECE = 1 << 16


class HttpResponse(NamedTuple):
    """A complete response."""

    status: int
    reason: str
    headers: Message
    body: bytes


class TooLargeError(Exception):
    """An answer is larger than allowed."""


def connection(parts: SplitResult, seconds: float) -> http.client.HTTPConnection:
    """Give a connection to an address, not opened yet; each step on it may take so many seconds.

    Raises:
        ValueError, HTTPException: it is not an address of HTTP.
    """
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ValueError("it has no host")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=seconds)


@pipes_may_break()
def ask(
    opened: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: dict[str, str],
    *,
    seconds: float,
    most_bytes: int,
) -> HttpResponse:
    """Send a request, read its answer to its end and close the connection.

    Raises:
        TimeoutError: no whole answer in ``seconds``, or none in those of a step.
        TooLargeError: it has more than ``most_bytes``.
        OSError, HTTPException: no connection, or one that broke, in the middle of an answer, too.
    """
    end = monotonic() + seconds
    overdue: threading.Timer | None = None
    try:
        opened.connect()
        # A connection lets go of its socket as soon as an answer without a length begins: the timer needs it before.
        overdue = threading.Timer(max(end - monotonic(), 0), _cut, (opened.sock,))
        overdue.daemon = True
        overdue.start()
        opened.request(method, target, body, headers)
        with opened.getresponse() as response:
            answer = HttpResponse(response.status, response.reason, response.headers, _read(response, end, most_bytes))
    except FAULTS:
        if monotonic() >= end:
            raise TimeoutError from None
        raise
    finally:
        if overdue is not None:
            overdue.cancel()
        opened.close()
    if monotonic() >= end:  # what is left of an answer that was cut may look whole
        raise TimeoutError
    return answer


def _read(response: http.client.HTTPResponse, end: float, most_bytes: int) -> bytes:
    found = bytearray()
    while piece := response.read1(_PIECE):
        found += piece
        if len(found) > most_bytes:
            raise TooLargeError
        if monotonic() > end:  # what still arrives is read even from a socket that was shut down
            raise TimeoutError
    wanted = response.getheader("Content-Length", "")
    if wanted.isdecimal() and len(found) < int(wanted):
        raise ConnectionError("the response is incomplete")
    return bytes(found)


def _cut(connected: socket.socket) -> None:
    """End a connection in the middle of an answer that drips."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


ANSWER_SECONDS = 10.0
"""Seconds for one page, from the first byte requested to the last byte read."""
MAX_PAGE = 64 * 1024 * 1024
"""Bytes; /metrics of vLLM has about 50 KB for each engine."""
_HINTS = {
    400: f"the server does not understand the query; write labels as in --match {LABELS_EXAMPLE}",
    401: "the address needs credentials: http://USER:PASSWORD@HOST",
    403: "the address needs credentials: http://USER:PASSWORD@HOST",
    404: "check that /metrics or Prometheus is at this address",
    503: "the server is starting or busy; try again",
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
        raise SourceError(f"{name}: is not an address", "write the address as http://HOST:PORT/metrics") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "*/*", "User-Agent": "cachedoctor", **_credentials(parts)}
    try:
        answer = ask(opened, "GET", target, None, headers, seconds=seconds, most_bytes=MAX_PAGE)
    except TooLargeError:
        raise SourceError(
            f"{name}: answered with more than {MAX_PAGE >> 20} MiB", "request less data with --match"
        ) from None
    except TimeoutError:
        hint = "the server is busy, or the address is wrong"
        raise SourceError(f"{name}: no complete response within {seconds:.0f} s", hint) from None
    except FAULTS as fault:
        what = getattr(fault, "strerror", None) or str(fault)[:100] or type(fault).__name__
        raise SourceError(f"{name}: cannot be fetched ({what})", "check that a server is running there") from None
    if answer.status != http.HTTPStatus.OK:
        hint = _HINTS.get(answer.status, "check the address with curl")
        raise SourceError(f"{name}: answered {answer.status} {answer.reason[:60]}", hint)
    return answer.body


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
