"""How a value in a recognised line of llama-server or a small program is treated: kept, simplified or replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model.bounds import NUMBERS
from cachedoctor.redaction.known_words import ARCHITECTURES, CHAT_FORMATS, ENDPOINTS, METADATA, METHODS, SAMPLERS, TYPES
from cachedoctor.redaction.stand_ins import StandInNames

PLAIN = NUMBERS | {"x"}
"""Kinds of placeholders that hold only a number."""
DIGITS_MAX = 24
"""Characters of a number that a server prints; 64 bits have 20."""
_TOKEN_OF = {"path": "path", "host": "host", "url": "url", "json": "json"}

Keep = Callable[[bytes], "bytes | None"]
"""The part of a value that may be kept; None if it must become a token."""


def _one_of(words: frozenset[bytes] | set[bytes]) -> Keep:
    return lambda raw: raw if raw in words else None


def _like(pattern: bytes) -> Keep:
    known = re.compile(pattern)
    return lambda raw: raw if known.fullmatch(raw) else None


def _chain(raw: bytes) -> bytes | None:
    return raw if all(part.strip(b" ?") in SAMPLERS for part in raw.split(b"->")) else None


def _endpoint(raw: bytes) -> bytes | None:
    path, _, query = raw.partition(b"?")
    if path not in ENDPOINTS and not re.fullmatch(rb"/slots/\d{1,3}", path):
        return None
    return raw if not query or re.fullmatch(rb"action=(?:save|restore|erase)", query) else path


def _architecture(raw: bytes) -> bytes | None:
    """Keep the longest known name in it: the analysis needs only the family."""
    inside = [name for name in ARCHITECTURES if name in raw] if raw not in ARCHITECTURES else [raw]
    return max(inside, key=lambda name: (len(name), name), default=None)


def _metadata(raw: bytes) -> bytes | None:
    return raw if all(part in METADATA for part in raw.split(b".")) else None


def _option(raw: bytes) -> bytes | None:
    name = server_options.plain(raw.decode("ascii", "replace"))
    return raw if name in server_options.BY_NAME or name in server_options.NEVER else None


_ERRORS = late(
    rb"(?:request|input) \(\d{1,15} tokens\) (?:"
    rb"exceeds the available context size \(\d{1,15} tokens\), try increasing it"
    rb"|is larger than the max context size \(\d{1,15} tokens\)\. skipping"
    rb"|is too large to process\. increase the physical batch size \(current batch size: \d{1,15}\))"
    rb"|the request exceeds the available context size(?:, try increasing it"
    rb"|\. try increasing the context size or enable context shift)"
    rb"|input is (?:larger than the max context size\. skipping"
    rb"|too large to process(?:\.|, please) increase the physical batch size)"
    rb"|failed to process (?:image|mtmd chunk)|Context size has been exceeded\.|Compute error\.|Invalid input batch\."
)
_TOO_LONG = late(rb"(\(\d{1,15} tokens\) ?|)(?:exceeds? the available context size|larger than the max context size)")
_NUMBERED = late(rb"\(\d{1,15} tokens\)")


def _error(raw: bytes) -> bytes | None:
    """Keep the server's message about a prompt that is too long, even in an unknown wording."""
    if _ERRORS.fullmatch(raw):
        return raw
    found = _TOO_LONG.search(raw)
    if found is None:
        return None
    sizes = _NUMBERED.findall(raw)[:2]
    return b"request " + b" ".join(sizes[:1]) + b" exceeds the available context size " + b" ".join(sizes[1:])


_BUILD = late(rb"b\d{1,6}(?![0-9])|v?\d{1,3}\.\d{1,3}\.\d{1,4}(?![\w.])")
_COMMITTED = late(
    rb"(?:b\d{1,6}|v?\d{1,3}\.\d{1,3}\.\d{1,4}(?:-dev)?)"
    rb"(?:-unknown|-[0-9a-f]{7,9}| \(build \d{1,6}, commit (?:unknown|[0-9a-f]{7,9})\))"
)


def _build(raw: bytes) -> bytes | None:
    found = _BUILD.match(raw)
    return raw if _COMMITTED.fullmatch(raw) else found[0] if found else None


_TARGET = _like(rb" ?(?:Linux|Darwin|Windows|FreeBSD)? ?(?:x86_64|aarch64|arm64|AMD64|armv7l|riscv64)?(?: \(debug\))?")
_SHARES = _like(rb"[01]\.\d{1,6}(?:, ?[01]\.\d{1,6}){0,99}")
_TRUTH = _one_of({b"true", b"false", b"yes", b"no", b"0", b"1"})
_TYPE = _one_of(TYPES)
_HOLES_KEPT: dict[str, Keep] = {
    "arch": _architecture,
    "arg": _option,
    "build_info": _build,
    "build_type": _TARGET,
    "chain": _chain,
    "commit": _like(rb"unknown|[0-9a-f]{7,9}"),
    "compiler": _like(rb"(?:GNU|Clang|AppleClang|MSVC|GCC|Intel|IntelLLVM) \d[\d.]{0,15}"),
    "do_checkpoint": _TRUTH,
    "error": _error,
    "format": _one_of(CHAT_FORMATS),
    "ggml_type_name": _TYPE,
    "ggml_type_name_2": _TYPE,
    "ggml_type_name_3": _TYPE,
    "kind": _one_of({b"image", b"audio"}),
    "kv_unified": _TRUTH,
    "kwarg": _like(rb"true|false|unset(?: \(template default\))?"),
    "rates": _SHARES,
    "rate_per_position": _SHARES,
    "scheme": _one_of({b"http", b"https"}),
    "target": _TARGET,
    "type_k": _TYPE,
    "type_v": _TYPE,
}
_KEPT_IN: dict[tuple[str, str], Keep] = {
    ("client_header", "header"): _like(
        rb"(?:(?:cc_version=[\d.]{1,20}[0-9a-f]{0,8}|cc_entrypoint=[a-z-]{1,20}|cch=[0-9a-f]{1,16});? ?){1,3}\"?,?"
    ),
    ("http_done", "path"): _endpoint,
    ("router_proxy", "path"): _endpoint,
    ("img_slice", "name"): _one_of({b"image", b"audio"}),
    ("kv_dump", "name"): _metadata,
    ("kv_dump", "type_name"): _like(rb"(?:arr\[)?(?:str|u8|i8|u16|i16|u32|i32|u64|i64|f32|f64|bool)(?:,\d{1,9}\])?"),
    ("kv_dump", "value"): _like(rb"-?\d{1,9}(?:\.\d{1,9})?|true|false"),
    ("listening", "port"): _like(rb"\d{1,5}"),
    ("model_type", "type"): _like(rb"(?:\d{1,4}(?:x\d{1,3})?(?:\.\d{1,3})?|\?)[BM](?:\.A\d{1,3}(?:\.\d{1,2})?B)?"),
}
_MODELS = {("router_proxy", "model"), ("model_name", "general.name")}
_MODELS |= {(message, "name") for message in ("router_spawn", "router_exited", "router_lru", "router_stopping")}

_URL = late(rb"https://github\.com/ggml-org/llama\.cpp/(?:pull|issues)/\d{1,6}(?:#issuecomment-\d{1,12})?")
_ADDRESS = late(rb"((?:https?|unix)://)?(.+?)(:\d{1,5})?")
_SENTENCE = late(
    rb"(?:Context size has been exceeded|Invalid input batch|Compute error|"
    rb"failed to decode(?: the batch)?(?:: KV cache is full - try increasing it via the context size)?)\.?,?"
)


def replaced(message: str, name: str, kind: str, raw: bytes, tokens: StandInNames) -> bytes:
    """Return the replacement of ``raw``, the value ``name`` of a message; numbers are not passed."""
    keep = _KEPT_IN.get((message, name)) or _HOLES_KEPT.get(name)
    if not raw.strip():
        return raw
    kept = None if keep is None else keep(raw)
    if kept is not None:
        return kept
    if kind == "url" and _URL.fullmatch(raw):
        return raw
    if kind == "method":
        return raw if raw in METHODS else b"X"
    if kind == "nolimit":
        return b"no limit"
    if kind == "ids":  # ids of tokens are the prompt in another alphabet
        return re.sub(rb"-?\d+", b"0", raw)
    if kind == "sentence":
        found = _SENTENCE.match(raw)
        if found is not None:
            return found[0] if found.end() == len(raw) else found[0] + b" " + tokens.give("text", raw[found.end() :])
    if kind == "host":
        return address(raw, tokens)
    return tokens.give("model" if (message, name) in _MODELS else _TOKEN_OF.get(kind, "text"), raw)


def address(raw: bytes, tokens: StandInNames) -> bytes:
    """Replace the host of an address; protocol and port stay."""
    found = _ADDRESS.fullmatch(raw)
    if found is None:
        return tokens.give("host", raw)
    scheme, host, port = found.groups(b"")
    if (host + port).count(b":") > 1 and not host.endswith(b"]"):  # an IPv6 address without brackets has no port
        host, port = host + port, b""
    return scheme + tokens.give("host", host) + port


_HOLES_PROGRAMS_KEPT = {
    "version": late(rb"v?\d{1,5}(?:\.\d{1,6}){1,3}"),
    "tid": late(rb"\"\d{1,20}\""),
    "truncated": late(rb"true|false"),
    "type": late(rb"exact|partial|prefix|full"),
    "reason": late(rb"non_trimmable_divergence"),
    "why": late(rb"token-mismatch|incoming-prompt-shorter-than-live-checkpoint|live-prefix-match|no-live-checkpoint"),
    "kind": late(rb"chat|completion"),
    "flags": late(rb"(?:RESPPROTO|TOOLS)(?: TOOLS)?"),
    "vision": late(rb"match"),
    "source": late(rb"paged"),
    "promoted": late(rb"True|False"),
    "stuck": late(rb"True|False"),
    "more": late(rb"max_tokens=\d{1,9} running=\d{1,9} waiting=\d{1,9}"),
    "rates": late(
        rb"\d{1,9}(?:\.\d{1,6})? T/s(?:, Generate: \d{1,9}(?:\.\d{1,6})? T/s(?:, Context: \d{1,9} tokens\))?)?,?"
        rb"(?: ?Generate:)?"
    ),
}
_CLOCK = rb"\d{1,4}(?:[-:.,/T]\d{1,6}){1,8}(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = rb"(?:DEBUG|INFO|WARNING|WARN|ERROR|ERR|CRITICAL|VERB|TRACE)"
_HARMLESS = late(
    rb"\[?" + _CLOCK + rb"\]?|time=" + _CLOCK + rb"|level=" + _LEVEL + rb"|" + _LEVEL + rb":?|\[" + _LEVEL + rb"\]:?|\["
)
WORD = late(rb"\s+|\[[^\]\s]*\]:?|\S+")
"""A part of what comes before a message."""
_CACHED = late(rb"(?:\A| )\d{1,15} \Z")
"""Reused tokens in a broken line of TabbyAPI, which continues ``cached tokens``."""


def replaced_in_program(name: str, kind: str, raw: bytes, tokens: StandInNames) -> bytes:
    """Return the replacement of ``raw``, the value ``name`` of a message; numbers are not passed."""
    known = _HOLES_PROGRAMS_KEPT.get(name)
    if known is not None and known.fullmatch(raw.strip()):
        return raw
    if kind == "host":
        return address(raw, tokens)
    return tokens.give("request" if name in ("id", "tid") else "text", raw)


def prefix(raw: bytes, known: frozenset[bytes], tokens: StandInNames) -> bytes:
    """Write what comes before a message again: clocks, levels and the ``known`` words of the program stay."""
    count = _CACHED.search(raw)
    if count is not None:
        return tokens.give("text", raw[: count.start()]) + raw[count.start() :]
    return b"".join(_words(raw, known, tokens))


def _words(raw: bytes, known: frozenset[bytes], tokens: StandInNames) -> Iterator[bytes]:
    for found in WORD.finditer(raw):
        word = found[0]
        if not word.strip() or word in known or _HARMLESS.fullmatch(word):
            yield word if word.strip() else word.replace(b"\r", b"")
        elif word.startswith(b"source="):
            yield b"source=x.go:1"
        elif word.startswith(b"time="):
            yield b"time=-"
        elif word.startswith(b"level="):
            yield b"level=INFO"
        elif word.startswith(b"["):
            yield b"[x]:"[: 4 if word.endswith(b":") else 3] if b"]" in word else b"["
        elif word.endswith(b"]"):
            yield b"function]"
        else:
            yield tokens.give("text", word)
