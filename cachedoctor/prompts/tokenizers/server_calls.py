"""Asks a running llama-server one thing: bounded in size and time, every fault one line. Knows HTTP, no endpoint."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.model import CacheDoctorError

TIMEOUT_SECONDS = 30.0
"""For one step of an answer; a server that is reading a prompt of 250,000 tokens still tokenises within a second."""
DEADLINE_SECONDS = 60.0
"""For a whole answer, however many steps it comes in."""
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes; 250,000 tokens with their pieces are about 10 MiB."""
_PIECE = 1 << 20
_MAX_REASON = 200
"""Code points of what the server says of an error."""
_HINTS = {401: "the server wants an API key", 503: "the model is still loading: try again"}


@pipes_may_break()
def post(url: str, value: Any) -> Any:
    """Post ``value`` as JSON and give what was answered, decoded.

    A proxy of the environment is not asked, and nothing is followed elsewhere: this is the user's own server.

    Raises:
        CacheDoctorError: it cannot be reached, takes too long, or answers an error or no JSON.
    """
    connection, path = _connection(url)
    overdue = threading.Timer(DEADLINE_SECONDS, lambda: None)
    try:
        connection.connect()
        # The connection lets go of its socket as soon as an answer without a length begins.
        overdue = threading.Timer(DEADLINE_SECONDS, _cut, (connection.sock,))
        overdue.daemon = True
        overdue.start()
        connection.request("POST", path, json.dumps(value).encode(), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = _read(answer)
        answer.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CacheDoctorError(f"cannot reach {url}: {_reason(error)}", "is llama-server running there?") from None
    finally:
        overdue.cancel()
        connection.close()
    if len(data) > MAX_ANSWER:
        raise CacheDoctorError(f"{url} answered more than {MAX_ANSWER >> 20} MiB", "is this a llama-server?")
    if answer.status != 200:
        raise _refused(url, answer, data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise CacheDoctorError(f"{url} did not answer with JSON", "is this a llama-server?") from None


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if not host or parts.scheme not in ("http", "https"):
            raise ValueError("it has no host")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(host, port, timeout=TIMEOUT_SECONDS), parts.path or "/"
    except (ValueError, http.client.HTTPException) as error:
        raise CacheDoctorError(f"{url} is no address: {error}", "give it as http://host:port") from None


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Read an answer to its end, or a little further than it may go; memory is taken as it comes."""
    pieces, size, began = [], 0, monotonic()
    while size <= MAX_ANSWER and (piece := answer.read1(_PIECE)):
        if monotonic() - began > DEADLINE_SECONDS:  # what still arrives is read even from a socket that was shut down
            answer.close()
            raise TimeoutError
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _cut(connected: socket.socket) -> None:
    """End a connection in the middle of an answer that drips."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    return (str(error) or type(error).__name__)[:_MAX_REASON]


def _refused(url: str, answer: http.client.HTTPResponse, data: bytes) -> CacheDoctorError:
    """What an error of the server says: its own words, where it has some."""
    try:
        said = json.loads(data)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        said = answer.reason
    hint = _HINTS.get(answer.status, "is this a llama-server with a model loaded?")
    return CacheDoctorError(f"{url} answered {answer.status} {str(said)[:_MAX_REASON]}", hint)
