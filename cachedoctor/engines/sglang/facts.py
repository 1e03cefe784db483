"""Facts about the server in lines of SGLang: rank, access lines, version, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import lru_cache
from typing import Any, NamedTuple

from cachedoctor.diagnosis.account.asking import count_caller
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.logger import hosts
from cachedoctor.knowledge import literals
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Session, Setting

HEAD = rb"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: [A-Z_]{2,8}\d{1,4})*\] "
"""The inside of ``[2026-07-04 04:31:24.998 DP0 PP0 TP0] ``; logs of 2024 have no date, one process has no rank."""
_HEAD = late(
    rb"\[(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<rank>(?: [A-Z_]{2,8}\d{1,4})*)\] "
)
_DATA_PARALLEL = late(r"\bDP\d+")


class Writer(NamedTuple):
    """The rank that wrote a line, and the time."""

    time: str | None
    """ISO 8601 without a zone, ``2026-07-04T04:31:24``, or ``T04:31:24``."""
    rank: str | None
    """``DP0 TP0``; None for a process that has none."""
    stream: str = ""
    """What schedules by itself: each data-parallel rank.

    Pipeline, tensor, context and expert ranks of one of these run the same batches, and some versions let several of
    them print.
    """


def writer_of(line: bytes) -> Writer:
    """Read the prefix of a line; both values are unknown if there is none."""
    found = _HEAD.search(line, 0, 4096)
    if found is None:
        return Writer(None, None)
    date, time, rank = found.groups()
    name, stream = _rank(rank)
    return Writer(((date or b"") + b"T" + time.replace(b",", b".")).decode(), name, stream)


@lru_cache(maxsize=256)
def _rank(rank: bytes) -> tuple[str | None, str]:
    """Name of a rank, and of its stream."""
    name = rank.decode().strip()
    stream = _DATA_PARALLEL.search(name)
    return name or None, stream[0] if stream else ""


_ACCESS_MOST_TEXT = 4096
"""Bytes of the line that are kept."""
_ANTHROPIC = "/v1/messages"
_OTHERS = frozenset(
    {"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/api/chat", "/api/generate"}
)


def count(session: Session, event: Event) -> None:
    """Count text requests by their interface, as a setting with the first of these lines."""
    path = str(event.fields["path"]).partition("?")[0]
    if event.fields["method"] != "POST" or not 200 <= event.fields["status"] < 300:
        return
    name = "anthropic_requests" if path == _ANTHROPIC else "chat_requests" if path in _OTHERS else None
    if name is None:
        return
    for host, times in hosts(event).items():
        count_caller(session, str(event.fields["path"]), host, times)
    requests = len(event.lines) or 1
    known = session.settings.get(name)
    if known is None:
        session.settings[name] = Setting(requests, event.line, event.text[:_ACCESS_MOST_TEXT])
    else:
        known.value += requests


SAMPLED = (403, 405, 406, 408, 410, *range(501, 524))
"""Releases whose messages and settings were read, each in the last of its versions: 0.4.3.post4, 0.5.2 ..."""
_POSTS = frozenset({403, 405, 406, 408, 410, 501, 503, 504, 505, 506, 508, 510, 512, 513, 515})
"""Of these, the ones with earlier versions, which may still have what the last version lacks."""
_LAST_04 = 410
_ALL_SETTINGS = 100
"""Minimum number of names that a version prints: fewer are an excerpt, in which a missing name proves nothing."""
_GRAPHS = ("cuda graph", "cpu graph", "npu graph")
_RATE = "input throughput (token/s)"


class VersionRange(NamedTuple):
    """Versions from ``low`` to ``high``, both included; None means no bound."""

    low: int | None
    high: int | None

    def both(self, other: VersionRange) -> VersionRange:
        """Versions in both ranges; ``low`` is above ``high`` if there are none."""
        lows = [n for n in (self.low, other.low) if n is not None]
        highs = [n for n in (self.high, other.high) if n is not None]
        return VersionRange(max(lows, default=None), min(highs, default=None))

    @property
    def empty(self) -> bool:
        """Whether the range contains no version."""
        return self.low is not None and self.high is not None and self.low > self.high


ANY = VersionRange(None, None)

NEW_SETTINGS: dict[int, str] = {
    405: "page_size",
    406: "disable_chunked_prefix_cache",
    408: "sleep_on_idle",
    410: "enable_lora",
    501: "weight_version",
    502: "tokenizer_worker_num",
    503: "enable_deterministic_inference",
    504: "kt_cpuinfer",
    505: "decrypted_config_file",
    506: "dllm_algorithm",
    507: "log_requests_format",
    508: "admin_api_key",
    509: "mamba_backend",
    510: "enable_hisparse",
    511: "enable_mis",
    512: "detokenizer_worker_num",
    513: "lmcache_config_file",
    514: "cp_strategy",
    515: "dcp_size",
    516: "grpc_port",
    517: "dwdp_size",
    518: "image_processor_backend",
    519: "enable_layernorm_sp",
    520: "uno_lora_path",
    521: "enable_response_store",
    522: "attn_dp_size",
    523: "enable_watermark",
}
"""A setting that ``server_args`` has from this version on, and in all later ones."""


def seen_in(first: int, last: int) -> VersionRange:
    """Range of a wording that was seen from ``first`` to ``last``, with the unchecked versions on both sides."""
    at, end = SAMPLED.index(first), SAMPLED.index(last)
    low = _after(SAMPLED[at - 1]) if at else None
    high = _without(SAMPLED[end + 1]) if end + 1 < len(SAMPLED) else None
    return VersionRange(low, high)


def from_settings(names: Set[str], whole: bool) -> VersionRange:
    """Range from the names in ``server_args``; ``whole``: the list is complete, so missing names count too."""
    found = ANY
    for first, name in NEW_SETTINGS.items():
        here = seen_in(first, SAMPLED[-1])
        if name in names:
            found = found.both(here)
        elif whole and len(names) >= _ALL_SETTINGS:
            found = found.both(VersionRange(None, _without(first)))
    return found


def from_batch(pairs: Mapping[str, str]) -> VersionRange:
    """Range from the fields of a prefill line; missing fields do not count, because the end may be torn off."""
    found = ANY
    for name, first, last in _PAIRS:
        if name in pairs:
            found = found.both(seen_in(first, last))
    order = list(pairs)
    graph = next((order.index(name) for name in _GRAPHS if name in pairs), None)
    if graph is not None and _RATE in pairs:
        found = found.both(seen_in(509, 509) if order.index(_RATE) < graph else seen_in(510, 523))
    return found


_PAIRS = (
    ("swa token usage", 410, 523),
    ("mamba usage", 503, 523),
    ("#pending-token", 511, 523),
    ("#replay-token", 521, 523),
    ("#unbootstrapped-req", 406, 502),
    ("#prealloc-req", 503, 511),
    ("#bootstrap-req", 512, 523),
)
"""A name in a prefill line, and the first and last sampled version that prints it."""


def text(number: int | None) -> str | None:
    """Format 510 as ``0.5.10``."""
    return None if number is None else f"0.{number // 100}.{number % 100}"


def _after(number: int) -> int:
    return 500 if number == _LAST_04 else number + 1


def _without(number: int) -> int:
    """Newest release that can lack what the last version of this one has."""
    return number if number in _POSTS else number - 1


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
_FACTS_MOST_TEXT = 1 << 16
"""Bytes of a line that are kept as evidence: settings take some 12,000."""
_SINGLE = "null"
"""disaggregation_mode of a server that does prefill and decode."""
_WITHOUT_CACHE = ("ChunkCache", "SWAChunkCache", "PureSWAChunkCache")
"""Kinds of cache that keep nothing, mem_cache/registry.py."""


def learn(session: Session, event: Event) -> VersionRange:
    """Add the settings that a line shows; returns the versions that have such settings."""
    handler = _HANDLERS.get(event.message)
    if handler is not None:
        return handler(session, event) or ANY
    if event.message.startswith("off_"):
        _off(session, event)
    return ANY


def port(event: Event) -> int:
    """Return the port in a line of settings, or 0 without one: a router may start several servers with one log."""
    found = literals.value(dict(literals.entries(event.fields["args"])).get("port", ""))
    return found if isinstance(found, int) else 0


def put(session: Session, name: str, value: Any, event: Event) -> None:
    """Set a setting from this line, even if it was known."""
    session.settings[name] = Setting(value, event.line, event.text[:_FACTS_MOST_TEXT])


def _first(session: Session, name: str, value: Any, event: Event) -> None:
    """Set a setting that no line has set yet."""
    if name not in session.settings:
        put(session, name, value, event)


def _server_args(session: Session, event: Event) -> VersionRange:
    printed = dict(literals.entries(event.fields["args"]))
    whole = printed.pop(")", None) is not None
    model = literals.value(printed.get("model_path", ""))
    if isinstance(model, str):
        session.learn(model=model)
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
    return from_settings(printed.keys(), whole)


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
    # A draft model is loaded after the model itself.
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


_HANDLERS: dict[str, Callable[[Session, Event], VersionRange | None]] = {
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
