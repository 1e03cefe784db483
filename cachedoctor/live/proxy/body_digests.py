"""A request body without its texts: the shape stays, equal texts stay equal; content codings undone."""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from itertools import groupby
from typing import Any

from cachedoctor.prompts.tokenizers.tokenize import pieces
from cachedoctor.redaction import harmless_words

MOST = 64 << 20
"""Bytes that a body may unpack to."""
_ANY = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever its head says."""


def unpacked(data: bytes, coding: str) -> bytes | None:
    """Give the bytes behind a coding; None where it is not known here, broken, or unpacks to too much."""
    match coding.strip().lower():
        case "" | "identity":
            return data
        case "gzip" | "x-gzip":
            return _inflated(data, _ANY)
        case "deflate":  # zlib by the standard, bare by what some servers send
            found = _inflated(data, _ANY)
            return _inflated(data, -zlib.MAX_WBITS) if found is None else found
        case _:
            return None


def _inflated(data: bytes, window: int) -> bytes | None:
    """What is there of a stream that was cut off is given, too."""
    decoder = zlib.decompressobj(window)
    try:
        out = decoder.decompress(data, MOST)
    except zlib.error:
        return None
    return None if decoder.unconsumed_tail else out


PIECE = 256
"""Code points that one hash stands for."""
_TOKENS = 16
"""Token ids that one hash stands for."""
_MEDIA = frozenset({"data", "url", "image_url", "file_data"})
"""Keys whose strings are files or addresses: not read as text."""
_FREE = frozenset(
    {"parameters", "input_schema", "input", "arguments", "metadata", "json_schema", "schema", "extra_body"}
)
"""Keys below which keys are the user's, and numbers as well."""
_API_KEYS = frozenset(
    {"type", "text", "role", "content", "name", "id", "properties", "required", "items", "description", "enum"}
    | {"tool_calls", "function", "call_id", "output", "summary", "source", "data", "media_type", "image_url", "url"}
)  # fmt: skip
_MOST_DEPTH = 200


class _Digester:
    def __init__(self) -> None:
        self._cutter = pieces()

    def value(self, value: Any, key: str = "", free: bool = False, depth: int = 0) -> Any:
        if depth > _MOST_DEPTH:
            return None
        if isinstance(value, dict):
            return {
                # The input of a whole request is its messages; that of a tool's call is the user's.
                self._key(name, free): self.value(item, name, free or (name in _FREE and depth > 0), depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return self._list(value, key, free, depth)
        if isinstance(value, str):
            return self._string(value, key, free)
        if free and isinstance(value, int | float) and not isinstance(value, bool):
            return _short(json.dumps(value))
        return value

    def _list(self, values: list[Any], key: str, free: bool, depth: int) -> list[Any]:
        """Numbers in a list are token ids, also between texts."""
        found: list[Any] = []
        for is_id, run in groupby(values, lambda item: type(item) is int):
            part = list(run)
            found += _ids(part) if is_id else [self.value(item, key, free, depth + 1) for item in part]
        return found

    def _key(self, name: str, free: bool) -> str:
        if name in _API_KEYS:
            return name
        return harmless_words.hashed(name) if free else harmless_words.field(name)

    def _string(self, text: str, key: str, free: bool) -> str:
        if key == "model" and not free:
            return harmless_words.model(text)
        if key in harmless_words.PLACES and (not free or key == "type"):
            return harmless_words.word(text, key)
        if key in _MEDIA:
            return f"sha256:{_short(text)}"
        return self._text(text)

    def _text(self, text: str) -> str:
        """Stand-in of as many tokens, counted without a vocabulary."""
        starts = self._cutter.encode(text).starts
        out, state = [], b""
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            state = _sha(state + piece.encode("utf-8", "surrogatepass"))
            count = bisect_left(starts, start + PIECE) - bisect_left(starts, start)
            out.append(" " + _letters(state) + " -" * max(0, count - 1))
        return "".join(out).removeprefix(" ")


def without_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Give the body with a stand-in for every text, every number of a tool call, and every key that is not an API's."""
    found: dict[str, Any] = _Digester().value(body)
    return found


def _ids(ids: list[int]) -> list[int]:
    """Stand-ins of token ids, as many."""
    out: list[int] = []
    state = b""
    for start in range(0, len(ids), _TOKENS):
        part = ids[start : start + _TOKENS]
        state = _sha(state + json.dumps(part).encode())
        out += [int.from_bytes(_sha(state + bytes([n]))[:3], "big") for n in range(len(part))]
    return out


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _short(text: str) -> str:
    return _sha(text.encode("utf-8", "surrogatepass")).hex()[:24]


def _letters(state: bytes) -> str:
    """A hash as one word of letters, which every tokenizer without a vocabulary takes for one piece."""
    return "".join(chr(ord("a") + (byte & 15)) for byte in state[:12])
