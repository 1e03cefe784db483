"""A request over HTTP, its answer bounded in bytes and in seconds, however slowly it drips; used by any room.

Knows the standard library's http.client; knows no endpoint. No proxy of the environment is asked, no redirect followed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from email.message import Message
from time import monotonic
from typing import NamedTuple
from urllib.parse import SplitResult

from cachedoctor.broken_pipes import pipes_may_break

FAULTS = (OSError, http.client.HTTPException, ValueError)
"""What asking may raise beside TooLargeError: no connection, a broken or late answer, what no head may hold."""
_PIECE = 1 << 16


class Answer(NamedTuple):
    """What came back, whole."""

    status: int
    reason: str
    headers: Message
    body: bytes


class TooLargeError(Exception):
    """An answer has more bytes than it may."""


def connection(parts: SplitResult, seconds: float) -> http.client.HTTPConnection:
    """Give a connection to an address, not opened yet; each step on it may take so many seconds.

    Raises:
        ValueError, HTTPException: it is no address of HTTP.
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
) -> Answer:
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
            answer = Answer(response.status, response.reason, response.headers, _read(response, end, most_bytes))
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
        raise ConnectionError("the answer ended before it was whole")
    return bytes(found)


def _cut(connected: socket.socket) -> None:
    """End a connection in the middle of an answer that drips."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
