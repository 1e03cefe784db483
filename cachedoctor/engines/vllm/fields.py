"""What every field of every message of vLLM means, and its unit: data for people who read a log line.

A name that means one thing everywhere stands alone; a name that means different things in different messages has no
general entry, only one per message: ``lookup.total``. Parts of a line that are read as pairs (``more``) have a table
of their own. Source: the code that prints the messages, vLLM 0.5.4 to 0.33.0 and LMCache 0.3.0 to 0.5.6.
"""

from __future__ import annotations

from cachedoctor.engines.catalogue.field_text import Field

F = Field

_PROMPT_RATE = (
    "prompt tokens per second of the interval: up to 0.14 all of them, reused ones included; from 0.16 on only those that"
    " were computed"
)
_USAGE = (
    "share of the KV cache that running requests hold; what is cached for later counts as free, so that a low number says"
    " nothing about eviction"
)
_NOTHING = {0.0: "nothing"}

FIELDS: dict[str, Field] = {
    # statistics
    "engine": F("", "number of the engine, which is its data parallel rank; each has a cache of its own"),
    "engines": F("count", "engines that the line adds up; each has a cache of its own"),
    "stats.prompt_rate": F("tokens/s", _PROMPT_RATE),
    "stats_v0.prompt_rate": F("tokens/s", "prompt tokens per second of the interval, reused ones included"),
    "generation_rate": F("tokens/s", "generated tokens per second of the interval"),
    "running": F("requests", "requests that are being computed"),
    "waiting": F("requests", "requests that wait for room in the KV cache or for a place in the batch"),
    "swapped": F("requests", "requests whose KV cache was moved to CPU memory to make room"),
    "pending": F("requests", "requests that wait"),
    "gpu_usage": F("%", _USAGE),
    "cpu_usage": F("%", "share of the KV cache in CPU memory that swapped requests hold"),
    "gpu_rate": F("%", "share of the blocks looked up in GPU memory that were found, since the start"),
    "cpu_rate": F("%", "the same for CPU memory"),
    "stats.more": F("", "further fields as pairs of a name and a value"),
    "iteration.more": F("", "further fields as pairs of a name and a value"),
    "speculation.more": F("", "fields as pairs of a name and a value"),
    "iteration": F("count", "number of the step"),
    "context_requests": F("requests", "requests of which prompt tokens were computed in this step"),
    "context_tokens": F("tokens", "prompt tokens computed in this step; reused ones are not among them"),
    "generation_requests": F("requests", "requests that generated in this step"),
    "generation_tokens": F("tokens", "tokens generated in this step, drafted ones included"),
    "elapsed": F("ms", "time of the step"),
    "api_servers": F("count", "API server processes", {1.0: "one: statistics lines are printed"}),
    # start
    "engine_start.version": F("", "version of vLLM"),
    "lmcache_start.version": F("", "version of vLLM"),
    "version.version": F("", "version of vLLM"),
    "lmcache_version": F("", "version of LMCache"),
    "model": F("", "name or path of the model"),
    "args": F("", "options and their values"),
    "config": F("", "settings and their values"),
    "tasks": F("", "what the model can be asked for"),
    "engine_ready.more": F("", "time that it took, and of what"),
    "architecture": F("", "architecture of the model, a class name"),
    "max_model_len": F("tokens", "longest request, prompt and answer together"),
    "max_batched_tokens": F("tokens", "most tokens that one step computes, of all requests together: the longest chunk of a prompt"),
    # sizes of blocks
    "attention_block": F("tokens", "block of the attention layers; a shorter common prefix is not reused"),
    "multiple": F("tokens", "the size must be a multiple of it"),
    "page_bytes": F("bytes", "memory of a recurrent state with its padding"),
    "page_bytes_before": F("bytes", "the same before the block was enlarged"),
    "padding": F("%", "padding in relation to the state itself"),
    "block_size": F("tokens", "block of the KV cache; a shorter common prefix is not reused"),
    "asked": F("tokens", "block size that was asked for"),
    "backend": F("", "attention backend that needs it"),
    "sizes": F("tokens", "block size of each group of layers"),
    "lcm_block": F("tokens", "least common multiple of the block sizes"),
    # models with a recurrent state
    "mamba_mode.mode": F("", "where states of recurrent layers are kept: align (ends of chunks and prompts) or all (every block)"),
    "mamba_mode_none.mode": F("", "none: no states are kept"),
    "mamba_experimental.mode": F("", "where states of recurrent layers are kept: align (ends of chunks and prompts) or all (every block)"),
    "preemption.mode": F("", "RECOMPUTE: the request is computed again; SWAP: its KV cache waits in CPU memory"),
    "mamba_mode_ignored.url": F("", "where the maintainers take complaints"),
    # what limits hits
    "managers": F("", "kinds of cache that cannot resume within a block"),
    "connector": F("", "class of the connector"),
    "engine_id": F("", "name of this engine for its peers"),
    "hash": F("", "hash function of the blocks (--prefix-caching-hash-algo)"),
    # capacity
    "device": F("", "where the KV cache is: GPU (or cuda), CPU, XPU ..."),
    "reset_asked.device": F("", "device that was asked for, None for all"),
    "kv_tokens": F("tokens", "size of the KV cache"),
    "concurrency": F("count", "requests of the longest length that fit at once"),
    "gpu_blocks": F("blocks", "blocks of the KV cache"),
    "cpu_blocks": F("blocks", "blocks in CPU memory for requests that are swapped out", {0.0: "no swap space"}),
    "blocks_override.gpu_blocks": F("blocks", "what would have fitted"),
    "override": F("blocks", "what is taken instead (--num-gpu-blocks-override)"),
    "preemptions": F("count", "preemptions since the start"),
    # what empties the cache
    "used_blocks": F("blocks", "blocks in use by running requests"),
    "level": F("", "1: weights are kept in CPU memory; 2: they are discarded"),
    "seconds": F("s", "time that it took"),
    "freed": F("GiB", "memory given up"),
    "used": F("GiB", "memory still in use"),
    "tags": F("", "parts that wake up; None for all"),
    "name": F("", "name of the adapter, which requests give as their model"),
    "lora_loaded.path": F("", "where the adapter was loaded from"),
    "lora_reloaded.path": F("", "where the adapter was loaded from, both times"),
    # requests
    "request": F("", "id of the request"),
    "prompt": F("", "prompt in quotes, its newlines as \\n, then parameters and token ids"),
    "params": F("", "sampling parameters, then the LoRA adapter"),
    "host": F("", "address of the client"),
    "method": F("", "method of the request"),
    "access.path": F("", "path of the request; /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages generate"),
    "http": F("", "version of the protocol"),
    "status": F("code", "status of the answer", {200.0: "answered"}),
    "reason": F("", "the status in words"),
    # connectors to caches outside
    "offloaded_tokens": F("tokens", "found in offloaded memory, behind those in GPU memory", _NOTHING),
    "gpu_tokens": F("tokens", "found in the engine's own prefix cache", _NOTHING),
    "lookup.total": F("tokens", "length of the prompt; of a request that was preempted, with what it had generated"),
    "lookup_pending.total": F("tokens", "length of the prompt"),
    "storing.total": F("tokens", "tokens of the request so far"),
    "stored.total": F("tokens", "tokens of the request so far"),
    "retrieved.total": F("tokens", "tokens of the request so far"),
    "hit": F("tokens", "what LMCache holds of the prompt from its begin, what is in GPU memory included", _NOTHING),
    "load": F("tokens", "what LMCache holds beyond the engine's own prefix cache", _NOTHING),
    "min_retrieve": F("tokens", "least number of tokens that is loaded; fewer are computed instead"),
    "storing.stored": F("tokens", "tokens to copy"),
    "stored.stored": F("tokens", "tokens copied", _NOTHING),
    "skipped": F("tokens", "tokens that LMCache has already"),
    "required": F("tokens", "tokens that were to be loaded"),
    "retrieved": F("tokens", "tokens that were loaded", {0.0: "nothing: they are computed"}),
    "size": F("GiB", "KV cache that was moved"),
    "cost": F("ms", "time that it took"),
    "throughput": F("GiB/s", "size / time"),
    "offload": F("ms", "time to copy out of GPU memory"),
    "put": F("ms", "time to hand it to where it is kept"),
    "role": F("", "SCHEDULER looks up, WORKER moves"),
    "metadata": F("", "model, ranks and shape of the cache; None in the scheduler"),
    "source": F("", "file, line and module that print the line"),
}  # fmt: skip

PAIRS: dict[str, Field] = {
    "stats.KV cache usage": F("%", _USAGE + ". The word before it is the device"),
    "stats.Prefix cache hit rate": F("%", "share of the tokens (0.8: of the blocks) looked up by the last 1,000 requests that were in the prefix cache; since the start or the last reset, not of the interval", {0.0: "nothing was found; 0.7.3 always prints this, and up to 0.30 it stands here before any lookup and with prefix caching off"}),
    "stats.External prefix cache hit rate": F("%", "share of the tokens not found here that a connector had, over the last 1,000 requests; printed once something was looked up"),
    "stats.MM cache hit rate": F("%", "share of images and other inputs whose preprocessing was cached, over the last 1,000 requests; items, not tokens"),
    "stats.Deferred": F("requests", "waiting requests that the scheduler passed over"),
    "stats.KV fetch": F("requests", "requests whose KV cache comes from a connector, by how far it is"),
    "stats.Preemptions": F("count", "preemptions in the interval; up to 0.33 never printed, even if there were some"),
    "stats.Corrupted": F("requests", "requests with values that are no numbers"),
    "iteration.KV cache usage": F("%", _USAGE + ". The word before it is the device"),
    "iteration.encoder inputs": F("count", "images and other inputs encoded in this step"),
    "iteration.encoder output embeddings": F("count", "embeddings that came of them"),
    "speculation.Draft acceptance rate": F("%", "share of the drafted tokens that were accepted"),
    "speculation.Avg Draft acceptance rate": F("%", "share of the drafted tokens that were accepted"),
    "speculation.Mean acceptance length": F("tokens", "tokens per step, the one that is always right included"),
    "speculation.Accepted throughput": F("tokens/s", "accepted drafts of the interval"),
    "speculation.Drafted throughput": F("tokens/s", "drafts of the interval"),
    "speculation.Accepted": F("tokens", "accepted drafts of the interval"),
    "speculation.Drafted": F("tokens", "drafts of the interval"),
    "speculation.Per-position acceptance rate": F("share", "share of accepted drafts by their place in the draft"),
}  # fmt: skip
"""Pairs in ``more``, by message and printed name."""


def field(message: str, name: str) -> Field | None:
    """Return the description of a field of a message, or None when there is none."""
    return FIELDS.get(f"{message}.{name}") or FIELDS.get(name)


def pair(message: str, name: str) -> Field | None:
    """Return the description of a pair by its printed name, ``CPU KV cache usage`` as well; None when there is none."""
    plain = "KV cache usage" if name.endswith(" KV cache usage") else name
    return PAIRS.get(f"{message}.{plain}")
