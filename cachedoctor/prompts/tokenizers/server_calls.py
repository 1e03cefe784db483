"""Asks a running llama-server for tokens, bounded in size and time."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from cachedoctor.inputs.http_requests import FAULTS, HttpResponse, TooLargeError, ask, connection
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.tokenizers.base import TokenArrays, char_at, char_offsets

TIMEOUT_SECONDS = 30.0
"""For one step of an answer; a server that is reading a prompt of 250,000 tokens still tokenises within a second."""
DEADLINE_SECONDS = 60.0
"""For a whole answer, however many steps it comes in."""
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes; 250,000 tokens with their pieces are about 10 MiB."""
_MAX_REASON = 200
"""Code points of what the server says of an error."""
_HINTS = {401: "the server requires an API key", 503: "the model is still loading: try again"}


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
        raise CacheDoctorError(f"{url} is not an address: {error}", "give the address as http://host:port") from None
    body, headers = json.dumps(value).encode(), {"Content-Type": "application/json"}
    try:
        answer = ask(opened, "POST", parts.path or "/", body, headers, seconds=DEADLINE_SECONDS, most_bytes=MAX_ANSWER)
    except TooLargeError:
        raise CacheDoctorError(
            f"{url} answered with more than {MAX_ANSWER >> 20} MiB", "check that this is a llama-server"
        ) from None
    except FAULTS as error:
        raise CacheDoctorError(
            f"cannot reach {url}: {_reason(error)}", "check that llama-server is running at this address"
        ) from None
    if answer.status != 200:
        raise _refused(url, answer)
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise CacheDoctorError(f"{url} did not answer with JSON", "check that this is a llama-server") from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} s"
    return (str(error) or type(error).__name__)[:_MAX_REASON]


def _refused(url: str, answer: HttpResponse) -> CacheDoctorError:
    """What an error of the server says: its own words, where it has some."""
    try:
        said = json.loads(answer.body)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        said = answer.reason
    hint = _HINTS.get(answer.status, "check that this is a llama-server with a loaded model")
    return CacheDoctorError(f"{url} answered {answer.status} {str(said)[:_MAX_REASON]}", hint)


class ServerTokenizer:
    """The tokenizer of the model that a llama-server has loaded."""

    exact = True
    # what the server's tokenizer does at the ends of a text is not known here
    local = False
    chat_template = None

    def __init__(self, url: str) -> None:
        """Ask the server once, for its BOS token; raises ``CacheDoctorError`` when it cannot be asked."""
        self.name = url
        self._url = url.rstrip("/")
        self._bos = [token["id"] for token in self._ask("", add_special=True)][:1]

    def leading(self, text: str) -> int:
        """Tokens that the server puts before this prompt."""
        return int(bool(self._bos) and [token["id"] for token in self._ask(text[:256])[:1]] != self._bos)

    def encode(self, text: str) -> TokenArrays:
        """Tokenise as the server does; a special token's text becomes that token, and no BOS is added."""
        answer = self._ask(text)
        return TokenArrays(
            [token["id"] for token in answer], self._starts(text, [_raw(token["piece"]) for token in answer])
        )

    def _starts(self, text: str, pieces: list[bytes]) -> list[int]:
        """Offsets by laying the pieces along the text; blanks may be added or swallowed by special tokens."""
        raw, offsets = text.encode("utf-8", "replace"), char_offsets(text)
        starts, at = [], 0
        for piece in pieces:
            here = next((p for p in (piece, piece.removeprefix(b" ")) if raw.startswith(p, at)), None)
            if here is None:
                blanks = len(raw) - at - len(raw[at:].lstrip())
                if not raw.startswith(piece, at + blanks):
                    raise CacheDoctorError(
                        f"the tokens of {self._url} do not match the prompt from byte {at:,} on",
                        "use the model's own tokenizer.json or .gguf instead",
                    )
                at, here = at + blanks, piece
            starts.append(char_at(offsets, at))
            at += len(here)
        return starts

    def _ask(self, text: str, *, add_special: bool = False) -> list[dict[str, Any]]:
        body = {"content": text, "add_special": add_special, "parse_special": True, "with_pieces": True}
        answer = post(f"{self._url}/tokenize", body)
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list):
            raise CacheDoctorError(f"{self._url}/tokenize answered without tokens", "check that this is a llama-server")
        if not all(isinstance(t, dict) and isinstance(t.get("id"), int) and "piece" in t for t in tokens):
            raise CacheDoctorError(
                f"{self._url}/tokenize returns no token text: the server is older than b3683 (September 2024)",
                "use the model's own tokenizer.json or .gguf instead",
            )
        return tokens


def _raw(piece: Any) -> bytes:
    # the server writes a piece that is not a UTF-8 by itself as a list of bytes
    if isinstance(piece, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in piece):
        return bytes(piece)
    return str(piece).encode("utf-8", "replace")
