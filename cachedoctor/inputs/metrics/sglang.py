"""What the series of SGLang (``--enable-metrics``) count, from 0.4.3 to 0.5.23.

Requests are counted when they end. The gauge ``cache_hit_rate`` is not read: it shows only the last batch, and every
report of a decode set it to 0 before 0.5.20. There is no count of lookups: ``looked_up`` stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cachedoctor.inputs.metrics.dump import EngineCounts, EngineKey, MetricSamples, put, put_tiers, total
from cachedoctor.inputs.metrics.prometheus import Sample

_COUNTERS = {
    "prompt_tokens": "prompt_tokens",
    "reused": "cached_tokens",
    "requests": "num_requests",
    "preemptions": "num_retracted_requests",
    "evicted": "evicted_tokens",
}
"""``cached_tokens`` by ``cache_source`` (device, host, storage; since 0.5.9) adds up to all of it."""
_COMPUTED = "uncached_prompt_tokens_histogram_sum"
"""Since 0.5.12; before, ``realtime_tokens`` includes it, and also the tokens recomputed for retracted requests."""
_REALTIME = "realtime_tokens"
"""Since 0.5.7."""
_REPLICAS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "attn_tp_rank", "attn_cp_rank", "pid"})
"""Ranks that all count the same requests."""

LATE = frozenset({"reused", "preemptions", "evicted", "computed", "requests", "prompt_tokens"})
"""A counter is in no dump before it counts for the first time."""


def names() -> set[str]:
    """Every series that is read, without ``_total`` or ``_created``."""
    return {*_COUNTERS.values(), _COMPUTED, _REALTIME}


def readings(series: MetricSamples) -> dict[EngineKey, EngineCounts]:
    """Counters of a server: by data-parallel rank if its prompt tokens are, else as a whole."""
    found: dict[EngineKey, EngineCounts] = {}
    ranked = any("dp_rank" in sample.labels for sample in series.counter("prompt_tokens"))
    key = _by_rank if ranked else _as_a_whole
    for name, counter in _COUNTERS.items():
        put(found, name, _sums(series.counter(counter), key))
    put_tiers(found, series.counter(_COUNTERS["reused"]), "cache_source", lambda samples: _sums(samples, key))
    realtime = [s for s in series.counter(_REALTIME) if s.labels.get("mode") == "prefill_compute"]
    put(found, "computed", _sums(series.of(_COMPUTED) or realtime, key))
    return found


def _by_rank(sample: Sample) -> EngineKey:
    return EngineKey(sample.labels.get("dp_rank"), sample.labels.get("model_name"))


def _as_a_whole(sample: Sample) -> EngineKey:
    return EngineKey(None, sample.labels.get("model_name"))


def _sums(samples: Iterable[Sample], key: Callable[[Sample], EngineKey]) -> dict[EngineKey, int | None]:
    """Add up series that differ in more than a replica rank; of those that do not, take the one that got farthest."""
    kinds: dict[frozenset[tuple[str, str]], Sample] = {}
    for sample in samples:
        kind = frozenset((name, value) for name, value in sample.labels.items() if name not in _REPLICAS)
        if kind not in kinds or sample.value > kinds[kind].value:
            kinds[kind] = sample
    return total(kinds.values(), key)
