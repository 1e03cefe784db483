"""Asks a server over HTTP within the probe's time and reads its answers; no key is ever quoted."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import zlib
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cachedoctor.inputs import http_requests
from cachedoctor.inputs.metrics.responses import Meta, Response, Timings, Usage, decoded, told
from cachedoctor.model import CacheDoctorError
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.text.text_safe import clipped


class Reply(NamedTuple):
    """Counts are None if the server does not report them."""

    prompt_tokens: int | None
    reused_tokens: int | None
    seconds: float
    refused: str | None = None
    """Reason of the refusal in the server's words, masked."""
    too_long: bool = False
    """The prompt does not fit into the context."""
    id: str | None = None
    """Id of the answer, unique unless it comes from a response cache."""
    left_out: bool = False
    """It has a usage object without the number of reused tokens."""


def read(at: ProbeConnection, answer: ProbeResponse, least_tokens: int = 1) -> Reply:
    """Read an answer; counts of a prompt of fewer tokens than the least that it can have are not counts.

    Raises:
        CacheDoctorError: it is not an answer of a chat endpoint.
    """
    told_error = isinstance(answer.value, dict) and "error" in answer.value and "choices" not in answer.value
    if answer.status != 200 or told_error:
        said = _message(answer)
        lower = said.lower()
        long = ("exceed" in lower and "context" in lower) or "maximum context length" in lower
        return Reply(None, None, answer.seconds, f"{answer.status}: {at.quote(said) or 'no message'}", long)
    if answer.body.lstrip()[:5] == b"data:":
        raise CacheDoctorError(
            f"{at.url}: the response is a stream, which was not requested",
            "probe the server directly, or fix the gateway",
        )
    if not isinstance(answer.value, dict) or not {"choices", "content", "usage"} & answer.value.keys():
        said = at.quote(answer.body[:200].decode("utf-8", "replace")) or "nothing"
        raise CacheDoctorError(
            f"{at.url}: the response is not a chat response: {said}", "check that this is an API address"
        )
    response = decoded(answer.body, Response) or Response()
    found = told(decoded(response.usage, Usage), decoded(response.meta_info, Meta), decoded(response.timings, Timings))
    if found is None or found.prompt_tokens < least_tokens:
        return Reply(None, None, answer.seconds, id=_id(answer))
    left_out = found.cached_tokens is None and b"cached_tokens" not in bytes(response.usage)
    return Reply(found.prompt_tokens, found.cached_tokens, answer.seconds, id=_id(answer), left_out=left_out)


def _id(answer: ProbeResponse) -> str | None:
    found = answer.value.get("id")
    return found if isinstance(found, str) and found else None


def _message(answer: ProbeResponse) -> str:
    error = answer.value.get("error", answer.value) if isinstance(answer.value, dict) else answer.value
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return str(error) if error else answer.body[:200].decode("utf-8", "replace")


MOST_BYTES = 8 << 20
"""Maximum bytes of an answer; /metrics of a large vLLM has 1 MB."""
_QUOTED = 160
"""Maximum cells quoted of a server's own words."""
MODELS, CHAT = "/v1/models", "/v1/chat/completions"
"""The paths that every server has; a gateway in front of it may reject all others."""
_REDIRECTS = (301, 302, 303, 307, 308)


class ProbeResponse(NamedTuple):
    """Status, the parsed JSON of the body (None if it is not JSON), the bytes, and the time it took."""

    status: int
    value: Any
    body: bytes
    seconds: float


class ProbeConnection:
    """A server's address, and what is left of the time."""

    def __init__(self, url: str, key: str | None, seconds: float) -> None:
        """Read ``url``.

        Raises:
            CacheDoctorError: it is not an address of a server.
        """
        self.scheme, self.host, self.port, self.path = _address(url)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"{self.scheme}://{host}:{self.port}{self.path}"
        self._key = key
        self._end = time.monotonic() + seconds
        self.limit = seconds

    def get(self, path: str, most_seconds: float = 10) -> ProbeResponse | None:
        """Request what the server may not have; None if it does not exist, or access is refused."""
        answer = self.ask("GET", path, None, most_seconds)
        return answer if answer.status == 200 else None

    def post(self, path: str, body: dict[str, Any]) -> ProbeResponse:
        """Send JSON."""
        return self.ask("POST", path, json.dumps(body).encode())

    def ask(self, method: str, path: str, body: bytes | None, most_seconds: float = 1e9) -> ProbeResponse:
        """Send a request and read its answer.

        Raises:
            CacheDoctorError: no answer came, or it was cut, endless or late; or what is needed is refused or elsewhere.
        """
        end = min(self._end, time.monotonic() + most_seconds)
        if end <= time.monotonic():
            raise self._late()
        begun = time.monotonic()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        opened = http_requests.connection(urlsplit(self.url), end - begun)
        try:
            answer = http_requests.ask(
                opened, method, self.path + path, body, headers, seconds=end - begun, most_bytes=MOST_BYTES
            )
        except http_requests.TooLargeError:
            raise self._too_large() from None
        except TimeoutError:
            raise self._late() from None
        except http_requests.FAULTS as error:
            raise self._failed(error) from None
        seconds = time.monotonic() - begun
        raw = self._unpacked(answer.body, answer.headers.get("Content-Encoding", "").strip().lower())
        if path in (MODELS, CHAT):
            self._refuse(answer.status, answer.headers)
        return ProbeResponse(answer.status, _json(raw), raw, seconds)

    def quote(self, text: object) -> str:
        """Format the words of a server for output: short, masked, on one line."""
        words = str(text).replace(self._key, "<key>") if self._key else str(text)
        return clipped(hidden(" ".join(words[:4096].split())), _QUOTED)

    def _unpacked(self, raw: bytes, coding: str) -> bytes:
        """Undo a compression that a gateway applied although the request did not allow it."""
        if coding in ("", "identity"):
            return raw
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise CacheDoctorError(f"{self.url}: the response is compressed as {self.quote(coding)}", _NO_PACKING)
        packed = zlib.decompressobj(47)  # gzip or zlib, by its head
        try:
            found = packed.decompress(raw, MOST_BYTES)
        except zlib.error:
            raise CacheDoctorError(
                f"{self.url}: the response is not {coding}, despite its header", _NO_PACKING
            ) from None
        if packed.unconsumed_tail:
            raise self._too_large()
        return found

    def _refuse(self, status: int, headers: Message) -> None:
        if status in (401, 403):
            said = "rejects the key" if self._key else "asks for a key"
            hint = "put the key into an environment variable and pass its name: --api-key-env NAME"
            raise CacheDoctorError(f"{self.url}: the server {said} ({status})", hint)
        if status in _REDIRECTS:
            where = self.quote(headers.get("Location", "another address"))
            raise CacheDoctorError(f"{self.url}: the server redirects to {where}", "give the new address instead")

    def _too_large(self) -> CacheDoctorError:
        return CacheDoctorError(f"{self.url}: a response has more than {MOST_BYTES >> 20} MiB", _NO_API)

    def _late(self) -> CacheDoctorError:
        what = f"{self.url}: no complete response within the time limit ({self.limit:g} s)"
        return CacheDoctorError(what, "raise --timeout, or send shorter prompts with --prompt-tokens")

    def _failed(self, error: Exception) -> CacheDoctorError:
        match error:
            case ssl.SSLError():
                hint = "use http:// if the server has no TLS; SSL_CERT_FILE sets your own certificate"
                return CacheDoctorError(f"{self.url}: TLS failed: {self.quote(error.reason or error)}", hint)
            case ConnectionRefusedError():
                return CacheDoctorError(
                    f"{self.url}: nothing listens at this address", "start the server, or give its address"
                )
            case socket.gaierror():
                return CacheDoctorError(f"{self.url}: unknown host", "check the address")
            case http.client.IncompleteRead() | http.client.RemoteDisconnected() | ConnectionError():
                return CacheDoctorError(f"{self.url}: the response is incomplete", "check the server's log")
        return CacheDoctorError(f"{self.url}: not a server response: {self.quote(error)}", _NO_API)


_NO_PACKING = (
    "probe the server directly, or disable compression in the gateway: the probe asks for uncompressed responses"
)
_NO_API = "give the address of an OpenAI-compatible server, http://127.0.0.1:8080"


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _address(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path, without the ``/v1`` at the end that clients are given."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise CacheDoctorError("not a server address", _NO_API) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise CacheDoctorError("not a server address", _NO_API)
    if parts.username is not None or parts.password is not None:
        raise CacheDoctorError("the address contains a user name or password", "give the key with --api-key-env NAME")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise CacheDoctorError("the address contains characters that are not ASCII", _NO_API)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path
