"""What the series of vLLM count, from 0.7.3 to 0.33.0.

``prefix_cache_queries`` and ``prefix_cache_hits`` count tokens, since 0.9.2. Before, and beside them until 0.11.2, the
same two were called ``gpu_prefix_cache_...``: never both are added. Up to 0.8 these count blocks; the help text says
which, and without it they stay unknown.
"""

from __future__ import annotations

from cachedoctor.inputs.metrics.dump import EngineCounts, EngineKey, MetricSamples, histogram, put, put_tiers, total
from cachedoctor.inputs.metrics.prometheus import Sample

_COUNTERS = {
    "prompt_tokens": "prompt_tokens",
    "external_looked_up": "external_prefix_cache_queries",
    "external_reused": "external_prefix_cache_hits",
    "requests": "request_success",
    "preemptions": "num_preemptions",
}
"""Preemptions are here only: no version up to 0.33 prints them into its log (PR 38452)."""
_LOOKUPS = {"looked_up": "queries", "reused": "hits"}
_BY_SOURCE = "prompt_tokens_by_source"
"""Since 0.16."""
_SOURCES = {"cached_local": "local_cache_hit", "cached_external": "external_kv_transfer"}
_BY_TIER = "prompt_tokens_cached_by_source"
"""Since 0.32 (PR 56318): device, host, disk, p2p, external_unspecified, counted at admission as hits are."""
_COMPUTED = "request_prefill_kv_computed_tokens_sum"
"""Since 0.13; of requests that ended."""
_HISTOGRAMS = {
    "computed_per_request": "request_prefill_kv_computed_tokens_bucket",
    "prompt_per_request": "request_prompt_tokens_bucket",
}
_TAKEN = "kv_block_lifetime_seconds_count"
"""Blocks that were given to another request, full or not, with or without a hash, as far as they are sampled; with
--kv-cache-metrics, since 0.12."""
_INFO = "cache_config_info"
MAX_FACTS = 64
"""0.32 has 35 facts about its cache."""
MAX_FACT = 200
"""Characters of a fact."""


def names() -> set[str]:
    """Every series that is read, without ``_total`` or ``_created``."""
    lookups = {f"{before}prefix_cache_{kind}" for before in ("", "gpu_") for kind in _LOOKUPS.values()}
    return {*_COUNTERS.values(), *lookups, _BY_SOURCE, _BY_TIER, _COMPUTED, _TAKEN, *_HISTOGRAMS.values(), _INFO}


def readings(series: MetricSamples) -> dict[EngineKey, EngineCounts]:
    """What each engine of a server has counted."""
    found: dict[EngineKey, EngineCounts] = {}
    for name, counter in _COUNTERS.items():
        put(found, name, total(series.counter(counter), _key))
    for name, kind in _LOOKUPS.items():
        samples = series.counter(f"prefix_cache_{kind}")
        if not samples and "tokens" in series.help(f"gpu_prefix_cache_{kind}"):
            samples = series.counter(f"gpu_prefix_cache_{kind}")
        put(found, name, total(samples, _key))
    by_source = series.counter(_BY_SOURCE)
    for name, source in _SOURCES.items():
        put(found, name, total([s for s in by_source if s.labels.get("source") == source], _key))
    put_tiers(found, series.counter(_BY_TIER), "source", lambda samples: total(samples, _key))
    computed = [s for s in by_source if s.labels.get("source") == "local_compute"]
    put(found, "computed", total(computed or series.of(_COMPUTED), _key))
    put(found, "blocks_taken", total(series.of(_TAKEN), _key))
    for name, bars in _HISTOGRAMS.items():
        for key, read in histogram(series.of(bars), _key).items():
            found.setdefault(key, EngineCounts()).buckets[name] = read
    _configure(found, series.of(_INFO))
    return found


def _key(sample: Sample) -> EngineKey:
    return EngineKey(sample.labels.get("engine"), sample.labels.get("model_name"))


def _configure(found: dict[EngineKey, EngineCounts], infos: list[Sample]) -> None:
    """Give every engine its facts, which name no model, and no engine in a server that has one."""
    for info in infos:
        engine = info.labels.get("engine")
        facts = {name: value[:MAX_FACT] for name, value in info.labels.items() if name != "engine"}
        for key, reading in found.items():
            if engine is None or engine == key.engine:
                reading.config = dict(list(facts.items())[:MAX_FACTS])
