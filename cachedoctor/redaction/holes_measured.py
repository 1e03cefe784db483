"""What becomes of a value in a line of vLLM or SGLang: kept, put into a harmless form, or replaced by a token."""

from __future__ import annotations

import re
from collections.abc import Callable

from cachedoctor.knowledge.builds import HYBRID, RECURRENT
from cachedoctor.redaction.holes import address
from cachedoctor.redaction.known_words import (
    ALGORITHMS,
    BACKENDS,
    CACHES,
    CONNECTORS,
    DEVICES,
    ENDPOINTS,
    MANAGERS,
    MEASURED_ARCHITECTURES,
    METHODS,
    MORE_ENDPOINTS,
    OTHERS,
    PHRASES,
    POLICIES,
    TASKS,
)
from cachedoctor.redaction.stand_ins import StandInNames

Keep = Callable[[bytes], "bytes | None"]
"""What of a value may stay; None when it must become a token."""
_FAMILIES = tuple(name.encode() for name in (*HYBRID, *RECURRENT))
_OTHER = b"OtherForCausalLM"
_ENDPOINTS = ENDPOINTS | MORE_ENDPOINTS


def architecture(raw: bytes) -> bytes:
    """Keep a known name; of others the family that says how the model remembers."""
    if raw in MEASURED_ARCHITECTURES:
        return raw
    family = max((name for name in _FAMILIES if raw.startswith(name)), key=len, default=b"")
    return family + b"ForCausalLM" if family else _OTHER


def word(kind: str, raw: str) -> str:
    """Keep a word of the server's own, ``fa3`` or ``lpm``; any other becomes ``other``."""
    return raw if raw.encode() in _WORDS[kind] else "other"


def _one_of(words: frozenset[bytes]) -> Keep:
    return lambda raw: raw if raw in words else None


def _like(pattern: bytes) -> Keep:
    known = re.compile(pattern)
    return lambda raw: raw if known.fullmatch(raw) else None


def _some_of(words: frozenset[bytes]) -> Keep:
    """A list of such words, however it is punctuated."""
    return lambda raw: raw if all(part in words for part in re.findall(rb"[^\s,/()\[\]{}'<>:]+", raw)) else None


def _version(raw: bytes) -> bytes | None:
    found = re.match(rb"v?\d{1,4}(?:\.\d{1,6}){1,3}(?:rc\d{1,3}|\.post\d{1,3}|\.dev\d{1,5})?", raw)
    return None if found is None else found[0]


_TRUTH = _one_of(frozenset({b"True", b"False"}))
_COUNT = _like(rb"-?\d{1,15}|None")
_WORDS = {
    "algorithm": ALGORITHMS, "backend": BACKENDS, "connector": CONNECTORS, "device": DEVICES, "policy": POLICIES,
    "other": OTHERS,
}  # fmt: skip
_KEPT: dict[str, Keep] = {
    "engine": _like(rb"\d{1,5}"),
    "version": _version,
    "lmcache_version": _version,
    "architecture": architecture,
    "config": _one_of(frozenset({b"FalconH1Config", b"NemotronHConfig"})),
    "backend": _some_of(BACKENDS),
    "mode": _one_of(OTHERS),
    "device": _some_of(DEVICES),
    "connector": _one_of(CONNECTORS),
    "managers": _some_of(MANAGERS),
    "hash": _one_of(frozenset({b"sha256", b"sha256_cbor", b"xxhash", b"xxhash_cbor", b"builtin"})),
    "level": _like(rb"[0-3]"),
    "tags": _some_of(frozenset({b"None", b"weights", b"kv_cache"})),
    "tasks": _some_of(TASKS),
    "sizes": _like(rb"\(?(?:\d{1,9}(?:, ?|(?=\)|\Z)))*\)?"),
    "http": _like(rb"\d(?:\.\d)?"),
    "role": _some_of(frozenset({b"KVConnectorRole.SCHEDULER", b"KVConnectorRole.WORKER", b"scheduler", b"worker"})),
    "chunked_prefill": _COUNT,
    "max_prefill": _COUNT,
    "max_running": _COUNT,
    "impl": _one_of(CACHES),
    "core": _one_of(frozenset({b"UnifiedTreeCore"})),
    "components": _some_of(
        frozenset({b"ComponentType.FULL", b"ComponentType.MAMBA", b"ComponentType.SWA", b"full", b"mamba", b"swa"})
    ),
    "hybrid_swa": _TRUTH,
    "hybrid_ssm": _TRUTH,
    "hicache": _TRUTH,
    "streaming": _TRUTH,
    "signal": _COUNT,
    "frame": _COUNT,
    "source": _one_of(frozenset({b"default"})),
    "pool": _one_of(frozenset({b"kv", b"mamba", b"swa", b"draft", b"indexer"})),
    "layers": _like(rb"(?:(?:target|draft|total)_layers=\d{1,4}(?:, )?)*"),
    "result": _one_of(frozenset({b"success", b"dropped"})),
    "time": _like(rb"[\dT:.+Z-]{1,40}"),
    "method": lambda raw: raw if raw in METHODS else b"X",
    "reason": _one_of(PHRASES),
}
_TOKEN_OF = {
    "request": "request", "rid": "request", "model": "model", "name": "model", "path": "path", "url": "path",
    "engine_id": "request",
}  # fmt: skip


def replaced(message: str, name: str, raw: bytes, tokens: StandInNames) -> bytes:
    """Return what is in the place of ``raw``, the value ``name`` of a message; numbers are not asked for."""
    if not raw.strip():
        return raw
    if message == "access" and name == "path":
        return _path(raw, tokens)
    if name == "host":
        return address(raw, tokens)
    keep = _KEPT.get(name)
    kept = None if keep is None else keep(raw)
    return tokens.give(_TOKEN_OF.get(name, "text"), raw) if kept is None else kept


def _path(raw: bytes, tokens: StandInNames) -> bytes:
    """Keep an endpoint, also after a prefix of the user's own: by its end the server knows what is asked for."""
    path, _, query = raw.partition(b"?")
    beta = b"?beta=true" if query == b"beta=true" else b""
    if path in _ENDPOINTS:
        return path + beta
    end = max((known for known in _ENDPOINTS if len(known) > 1 and path.endswith(known)), key=len, default=b"")
    return tokens.give("path", path.removesuffix(end)) + end + beta
