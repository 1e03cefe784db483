"""Asks over HTTP: every answer bounded in bytes and seconds, no redirect followed, no key ever quoted.

Knows the standard library's http.client. Knows no endpoint.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import zlib
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cachedoctor.model import CacheDoctorError
from cachedoctor.report.secrets import hidden
from cachedoctor.report.text.text_safe import clipped

MOST_BYTES = 8 << 20
"""Of an answer; /metrics of a large vLLM has 1 MB."""
_PIECE = 64 << 10
_QUOTED = 160
"""Cells of a server's own words."""
MODELS, CHAT = "/v1/models", "/v1/chat/completions"
"""What every server has; a gateway in front of it may refuse all else."""
_REDIRECTS = (301, 302, 303, 307, 308)


class Answer(NamedTuple):
    """Status, what the JSON of the body is (None: it is none), the bytes, and how long it took."""

    status: int
    value: Any
    body: bytes
    seconds: float


class Connection:
    """A server's address, and what is left of the time."""

    def __init__(self, url: str, key: str | None, seconds: float) -> None:
        """Read ``url``.

        Raises:
            CacheDoctorError: it is no address of a server.
        """
        self.scheme, self.host, self.port, self.path = _address(url)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"{self.scheme}://{host}:{self.port}{self.path}"
        self._key = key
        self._end = time.monotonic() + seconds
        self.limit = seconds

    def get(self, path: str, most_seconds: float = 10) -> Answer | None:
        """Ask for what the server may not have; None where there is no such thing, or it is kept from us."""
        answer = self.ask("GET", path, None, most_seconds)
        return answer if answer.status == 200 else None

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        """Send JSON."""
        return self.ask("POST", path, json.dumps(body).encode())

    def ask(self, method: str, path: str, body: bytes | None, most_seconds: float = 1e9) -> Answer:
        """Send a request and read its answer.

        Raises:
            CacheDoctorError: no answer came, or it was cut, endless or late; or what is needed is refused or elsewhere.
        """
        end = min(self._end, time.monotonic() + most_seconds)
        if end <= time.monotonic():
            raise self._late()
        opened = self._open(end)
        begun = time.monotonic()
        watch: threading.Timer | None = None
        try:
            opened.connect()
            watch = threading.Timer(end - begun, _cut, [opened.sock])
            watch.start()
            headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"}
            headers |= {"Content-Type": "application/json"} if body is not None else {}
            headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
            opened.request(method, self.path + path, body, headers)
            response = opened.getresponse()
            raw = self._read(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() >= end
            raise (self._late() if late else self._failed(error)) from None
        finally:
            if watch is not None:
                watch.cancel()
            opened.close()
        if time.monotonic() >= end:  # what is left of an answer that was cut may look whole
            raise self._late()
        if path in (MODELS, CHAT):
            self._refuse(response)
        return Answer(response.status, _json(raw), raw, time.monotonic() - begun)

    def quote(self, text: object) -> str:
        """Give the words of a server so that they can be shown: short, masked, on one line."""
        words = str(text).replace(self._key, "<key>") if self._key else str(text)
        return clipped(hidden(" ".join(words[:4096].split())), _QUOTED)

    def _open(self, end: float) -> http.client.HTTPConnection:
        left = max(end - time.monotonic(), 0.01)
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self.port, timeout=left, context=ssl.create_default_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=left)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        parts, size = [], 0
        while piece := response.read1(_PIECE):
            parts.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise CacheDoctorError(f"{self.url}: an answer has more than {MOST_BYTES >> 20} MiB", _NO_API)
        wanted = response.getheader("Content-Length", "")
        if wanted.isdecimal() and size < int(wanted):
            raise http.client.IncompleteRead(b"", int(wanted) - size)
        return self._unpacked(b"".join(parts), response.getheader("Content-Encoding", "").strip().lower())

    def _unpacked(self, raw: bytes, coding: str) -> bytes:
        """Undo what a gateway packs although it was asked not to."""
        if coding in ("", "identity"):
            return raw
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise CacheDoctorError(f"{self.url}: the answer is packed as {self.quote(coding)}", _NO_PACKING)
        packed = zlib.decompressobj(47)  # gzip or zlib, by its head
        try:
            found = packed.decompress(raw, MOST_BYTES)
        except zlib.error:
            raise CacheDoctorError(f"{self.url}: the answer is no {coding}, as it says", _NO_PACKING) from None
        if packed.unconsumed_tail:
            raise CacheDoctorError(f"{self.url}: an answer has more than {MOST_BYTES >> 20} MiB", _NO_API)
        return found

    def _refuse(self, response: http.client.HTTPResponse) -> None:
        if response.status in (401, 403):
            said = "refuses the key" if self._key else "asks for a key"
            hint = "put the key into a variable and name it: --api-key-env NAME"
            raise CacheDoctorError(f"{self.url}: the server {said} ({response.status})", hint)
        if response.status in _REDIRECTS:
            where = self.quote(response.getheader("Location", "another address"))
            raise CacheDoctorError(f"{self.url}: the server redirects to {where}", "give that address instead")

    def _late(self) -> CacheDoctorError:
        what = f"{self.url}: no whole answer came in the time that was given ({self.limit:g} s in all)"
        return CacheDoctorError(what, "--timeout gives it more seconds, --prompt-tokens sends shorter prompts")

    def _failed(self, error: Exception) -> CacheDoctorError:
        match error:
            case ssl.SSLError():
                hint = "http:// if the server has no TLS; SSL_CERT_FILE names a certificate of your own"
                return CacheDoctorError(f"{self.url}: TLS failed: {self.quote(error.reason or error)}", hint)
            case ConnectionRefusedError():
                return CacheDoctorError(f"{self.url}: nothing listens there", "start the server, or give its address")
            case socket.gaierror():
                return CacheDoctorError(f"{self.url}: there is no host of that name", "check the address")
            case http.client.IncompleteRead() | http.client.RemoteDisconnected() | ConnectionError():
                return CacheDoctorError(
                    f"{self.url}: the answer ended before it was whole", "look into the server's log"
                )
        return CacheDoctorError(f"{self.url}: no answer of a server: {self.quote(error)}", _NO_API)


_NO_PACKING = "ask the server itself, or switch packing off in the gateway: the probe asks for plain answers"
_NO_API = "give the address of an OpenAI-compatible server, http://127.0.0.1:8080"


def _cut(sock: socket.socket) -> None:
    """End an answer whose time is over, however slowly it drips."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _address(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path; ``/v1`` at the end, which clients are given, is taken off."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise CacheDoctorError("that is no address of a server", _NO_API) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise CacheDoctorError("that is no address of a server", _NO_API)
    if parts.username is not None or parts.password is not None:
        raise CacheDoctorError("an address must hold no name or password", "--api-key-env NAME takes the key")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise CacheDoctorError("an address has plain characters only", _NO_API)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path
