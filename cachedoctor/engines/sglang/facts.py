"""What start-up lines of SGLang say of the server: its settings, each with the line that proves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.sglang import versions
from cachedoctor.knowledge import literals
from cachedoctor.model import Session, Setting

_AS_PRINTED = {
    "page_size": "page_size",
    "chunked_prefill_size": "chunked_prefill",
    "context_length": "context",
    "mem_fraction_static": "mem_fraction",
    "schedule_policy": "schedule_policy",
    "attention_backend": "attention_backend",
    "enable_hierarchical_cache": "hicache",
    "mamba_scheduler_strategy": "mamba_strategy",
    "mamba_radix_cache_strategy": "mamba_strategy",
    "speculative_algorithm": "speculative",
    "enable_dynamic_chunking": "dynamic_chunks",
    "enable_mixed_chunk": "mixed_chunks",
}
"""Name in ``server_args`` and name of our setting; None stands for a default that is not known yet, and is left out."""
_KINDS: dict[str, tuple[type, ...]] = {
    "page_size": (int,),
    "chunked_prefill": (int,),
    "context": (int,),
    "mem_fraction": (float,),
    "hicache": (bool,),
    "dynamic_chunks": (bool,),
    "mixed_chunks": (bool,),
}
_MOST_TEXT = 1 << 16
"""Bytes of a line that is kept as evidence: settings take some 12,000."""
_SINGLE = "null"
"""disaggregation_mode of a server that does prefill and decode."""
_WITHOUT_CACHE = ("ChunkCache", "SWAChunkCache", "PureSWAChunkCache")
"""Kinds of cache that keep nothing, mem_cache/registry.py."""


def learn(session: Session, event: Event) -> versions.Range:
    """Put what a line says into the settings; the versions that have such settings."""
    handler = _HANDLERS.get(event.message)
    if handler is not None:
        return handler(session, event) or versions.ANY
    if event.message.startswith("off_"):
        _off(session, event)
    return versions.ANY


def port(event: Event) -> int:
    """Return the port in a line of settings, 0 without one: a router may start several servers with one log."""
    found = literals.value(dict(literals.entries(event.fields["args"])).get("port", ""))
    return found if isinstance(found, int) else 0


def put(session: Session, name: str, value: Any, event: Event) -> None:
    """Set a setting by this line, whatever was known."""
    session.settings[name] = Setting(value, event.line, event.text[:_MOST_TEXT])


def _first(session: Session, name: str, value: Any, event: Event) -> None:
    """Set a setting that no line has set yet."""
    if name not in session.settings:
        put(session, name, value, event)


def _server_args(session: Session, event: Event) -> versions.Range:
    printed = dict(literals.entries(event.fields["args"]))
    whole = printed.pop(")", None) is not None
    model = literals.value(printed.get("model_path", ""))
    if isinstance(model, str):
        session.model = model
    for name, ours in _AS_PRINTED.items():
        value = literals.value(printed.get(name, "None"))
        if _fits(ours, value):
            put(session, ours, value, event)
    off = literals.value(printed.get("disable_radix_cache", "None"))
    if isinstance(off, bool):
        _radix(session, not off, event)
    mode = literals.value(printed.get("disaggregation_mode", "None"))
    if isinstance(mode, str) and mode != _SINGLE:
        put(session, "disaggregation", mode, event)
    ranks = [literals.value(printed.get(name, "None")) for name in ("dp_size", "attn_dp_size")]
    if counts := [n for n in ranks if isinstance(n, int)]:
        put(session, "data_parallel", max(counts), event)
    return versions.from_settings(printed.keys(), whole)


def _fits(name: str, value: literals.Value) -> bool:
    if value is None:
        return False
    wanted = _KINDS.get(name, (str,))
    return isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))


def _radix(session: Session, on: bool, event: Event) -> None:
    """Say whether the cache is on; what has switched it off stays, since nothing switches it on again."""
    known = session.settings.get("radix_cache")
    if known is None or known.value is not False:
        put(session, "radix_cache", on, event)


def _off(session: Session, event: Event) -> None:
    _radix(session, False, event)
    _first(session, "radix_off_because", event.message, event)
    if "architecture" in event.fields:
        _first(session, "architecture", event.fields["architecture"], event)


def _architecture(session: Session, event: Event) -> None:
    # A draft model is loaded behind the model itself.
    _first(session, "architecture", event.fields["architecture"], event)


def _capacity(session: Session, event: Event) -> None:
    _first(session, "kv_tokens", event.fields["kv_tokens"], event)
    put(session, "context", event.fields["context"], event)
    chunk = literals.value(event.fields["chunked_prefill"])
    if isinstance(chunk, int):
        put(session, "chunked_prefill", chunk, event)


def _tree_cache(session: Session, event: Event) -> None:
    kind = event.fields["impl"]
    put(session, "cache_kind", kind, event)
    _radix(session, kind not in _WITHOUT_CACHE, event)
    for name in ("hybrid_ssm", "hybrid_swa", "hicache"):
        value = literals.value(event.fields[name])
        if isinstance(value, bool):
            put(session, name, value, event)


def _mamba_pool(session: Session, event: Event) -> None:
    _first(session, "hybrid_ssm", True, event)
    if "states" in event.fields:
        _first(session, "mamba_states", event.fields["states"], event)


def _no_buffer(session: Session, event: Event) -> None:
    put(session, "mamba_strategy", "no_buffer", event)
    if "architecture" in event.fields:
        _first(session, "architecture", event.fields["architecture"], event)


_HANDLERS: dict[str, Callable[[Session, Event], versions.Range | None]] = {
    "server_args": _server_args,
    "weights_loaded": _architecture,
    "capacity": _capacity,
    "tree_cache": _tree_cache,
    "mamba_pool": _mamba_pool,
    "swa_pool": lambda session, event: _first(session, "hybrid_swa", True, event),
    "extra_buffer": lambda session, event: put(session, "mamba_strategy", "extra_buffer", event),
    "extra_buffer_off_decode": _no_buffer,
    "no_buffer_page_one": _no_buffer,
    "overlap_off_mamba": _no_buffer,
    "overlap_off_no_buffer": _no_buffer,
    "hicache_host": lambda session, event: _first(session, "hicache", True, event),
    "radix_on_decode": lambda session, event: _radix(session, True, event),
}
