"""What one response says of its prompt: the shapes of OpenAI, Anthropic, SGLang and llama-server.

Knows keys of responses. Knows neither files nor streams.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model.bounds import MOST

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_T = TypeVar("_T")
_NONE = msgspec.Raw()
_LAYERS = 3


class _Details(msgspec.Struct):
    cached_tokens: _Tokens | None = None
    created_cache_tokens: _Tokens | None = None


class Usage(msgspec.Struct):
    """Key ``usage`` of a response, whatever the endpoint."""

    prompt_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: _Tokens | None = None
    """Of /v1/responses: all. Of /v1/messages: without those that were read from the cache or written to it."""
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    total_tokens: _Tokens | None = None


class Meta(msgspec.Struct):
    """Key ``meta_info`` of SGLang's /generate."""

    id: str | None = None
    prompt_tokens: _Tokens | None = None
    cached_tokens: _Tokens | None = None


class Timings(msgspec.Struct):
    """Key ``timings`` of llama-server; older builds have no ``cache_n``."""

    prompt_n: _Tokens | None = None
    """Tokens that were computed."""
    cache_n: _Tokens | None = None


class Response(msgspec.Struct):
    """Keys of a response that matter here, each read on its own: one that is odd spoils no other."""

    id: msgspec.Raw = _NONE
    type: msgspec.Raw = _NONE
    object: msgspec.Raw = _NONE
    model: msgspec.Raw = _NONE
    stop: msgspec.Raw = _NONE
    """true in the last part of a reply that llama-server's /completion streams; other servers have none."""
    usage: msgspec.Raw = _NONE
    meta_info: msgspec.Raw = _NONE
    timings: msgspec.Raw = _NONE
    response: msgspec.Raw = _NONE
    body: msgspec.Raw = _NONE
    message: msgspec.Raw = _NONE

    def layers(self) -> list[Response]:
        """Itself, and what an event, a batch file (in two wrappers) or a proxy has wrapped."""
        found = [self]
        while len(found) < _LAYERS:
            wrapped = (decoded(raw, Response) for raw in (found[-1].response, found[-1].body, found[-1].message))
            inner = next((response for response in wrapped if response is not None), None)
            if inner is None:
                break
            found.append(inner)
        return found


class Told(msgspec.Struct, frozen=True):
    """What a response says."""

    prompt_tokens: int
    cached_tokens: int | None
    engine: str | None = None
    """Who writes such responses; None: many do."""


def decoded(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T | None:
    """Read JSON as ``kind``; None for anything else."""
    if not isinstance(raw, bytes) and not bytes(raw):
        return None
    try:
        return msgspec.json.decode(sound_json(bytes(raw)), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def told(usage: Usage | None, meta: Meta | None, timings: Timings | None) -> Told | None:
    """Say how long the prompt was and how much of it was reused; None when not even the first is known."""
    found = _of_usage(usage) if usage is not None else None
    if timings is not None and timings.cache_n is not None and timings.prompt_n is not None:
        return _sound(Told(timings.prompt_n + timings.cache_n, timings.cache_n, "llama.cpp"))
    if meta is not None and meta.prompt_tokens is not None:
        return _sound(Told(meta.prompt_tokens, meta.cached_tokens, "sglang"))
    if found is not None and timings is not None:
        found = msgspec.structs.replace(found, engine="llama.cpp")
    return None if found is None else _sound(found)


def _of_usage(usage: Usage) -> Told | None:
    if usage.prompt_tokens is not None:
        details = usage.prompt_tokens_details or _Details()
        engine = "vllm" if details.created_cache_tokens is not None else None
        return Told(usage.prompt_tokens, details.cached_tokens, engine)
    if usage.input_tokens is None:
        return None
    if usage.input_tokens_details is not None or usage.total_tokens is not None:
        return Told(usage.input_tokens, (usage.input_tokens_details or _Details()).cached_tokens)
    # vLLM 0.32: 49 + 896 read, or 49 + 896 written, of a prompt of 945 tokens.
    parts = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return Told(usage.input_tokens + sum(part or 0 for part in parts), usage.cache_read_input_tokens)


def _sound(found: Told) -> Told:
    """More than the whole cannot have been reused: SGLang said so of retracted requests up to 0.5.3 (PR 11900)."""
    if found.cached_tokens is not None and found.cached_tokens > found.prompt_tokens:
        return msgspec.structs.replace(found, cached_tokens=None)
    return found
