"""The meaning and unit of every message and field of vLLM: data for people who read a log."""

from __future__ import annotations

from cachedoctor.engines.catalogue.logger import Field

F = Field

_PROMPT_RATE = "prompt tokens per second of the interval: up to 0.14 all prompt tokens, from 0.16 on only computed ones"
_USAGE = (
    "share of the KV cache held by running requests; cached blocks count as free, so a low number does not exclude"
    " evictions"
)
_NOTHING = {0.0: "nothing"}

FIELDS: dict[str, Field] = {
    # statistics
    "engine": F("", "number of the engine, which is its data parallel rank; each has its own cache"),
    "engines": F("count", "engines summed up in the line; each has its own cache"),
    "stats.prompt_rate": F("tokens/s", _PROMPT_RATE),
    "stats_v0.prompt_rate": F("tokens/s", "prompt tokens per second of the interval, including reused ones"),
    "generation_rate": F("tokens/s", "generated tokens per second of the interval"),
    "running": F("requests", "requests that are being computed"),
    "waiting": F("requests", "requests that wait for free space in the KV cache or in the batch"),
    "swapped": F("requests", "requests whose KV cache was moved to CPU memory to free GPU memory"),
    "pending": F("requests", "requests that wait"),
    "gpu_usage": F("%", _USAGE),
    "cpu_usage": F("%", "share of the KV cache in CPU memory that swapped requests hold"),
    "gpu_rate": F("%", "share of the blocks looked up in GPU memory that were found, since the start"),
    "cpu_rate": F("%", "share of the blocks looked up in CPU memory that were found, since the start"),
    "stats.more": F("", "further fields as pairs of a name and a value"),
    "iteration.more": F("", "further fields as pairs of a name and a value"),
    "speculation.more": F("", "fields as pairs of a name and a value"),
    "iteration": F("count", "number of the step"),
    "context_requests": F("requests", "requests whose prompt tokens were computed in this step"),
    "context_tokens": F("tokens", "prompt tokens computed in this step, without reused ones"),
    "generation_requests": F("requests", "requests that generated in this step"),
    "generation_tokens": F("tokens", "tokens generated in this step, including drafted ones"),
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
    "tasks": F("", "tasks that the model supports"),
    "engine_ready.more": F("", "duration, and in some versions the durations of its steps"),
    "architecture": F("", "architecture of the model, a class name"),
    "max_model_len": F("tokens", "longest request, prompt and answer together"),
    "max_batched_tokens": F("tokens", "maximum number of tokens that one step computes, of all requests together: the longest chunk of a prompt"),
    # sizes of blocks
    "attention_block": F("tokens", "block size of the attention layers; a shorter common prefix is not reused"),
    "multiple": F("tokens", "the block size must be a multiple of this number"),
    "page_bytes": F("bytes", "memory of a recurrent state with its padding"),
    "page_bytes_before": F("bytes", "memory of a recurrent state before the block was enlarged"),
    "padding": F("%", "padding as a share of the state's size"),
    "block_size": F("tokens", "block size of the KV cache; a shorter common prefix is not reused"),
    "asked": F("tokens", "requested block size"),
    "backend": F("", "attention backend that needs this block size"),
    "sizes": F("tokens", "block size of each group of layers"),
    "lcm_block": F("tokens", "least common multiple of the block sizes"),
    # models with a recurrent state
    "mamba_mode.mode": F("", "where states of recurrent layers are kept: align (ends of chunks and prompts) or all (every block)"),
    "mamba_mode_none.mode": F("", "none: no states are kept"),
    "mamba_experimental.mode": F("", "where states of recurrent layers are kept: align (ends of chunks and prompts) or all (every block)"),
    "preemption.mode": F("", "RECOMPUTE: the request is recomputed; SWAP: its KV cache waits in CPU memory"),
    "mamba_mode_ignored.url": F("", "where to report problems"),
    # what limits hits
    "managers": F("", "kinds of cache that cannot resume within a block"),
    "connector": F("", "class of the connector"),
    "engine_id": F("", "name of this engine for its peers"),
    "hash": F("", "hash function of the blocks (--prefix-caching-hash-algo)"),
    # capacity
    "device": F("", "where the KV cache is: GPU (or cuda), CPU, XPU ..."),
    "reset_asked.device": F("", "requested device, None for all"),
    "kv_tokens": F("tokens", "size of the KV cache"),
    "concurrency": F("count", "requests of the longest length that fit at once"),
    "gpu_blocks": F("blocks", "blocks of the KV cache"),
    "cpu_blocks": F("blocks", "blocks in CPU memory for requests that are swapped out", {0.0: "no swap space"}),
    "blocks_override.gpu_blocks": F("blocks", "number of blocks that would fit"),
    "override": F("blocks", "number used instead (--num-gpu-blocks-override)"),
    "preemptions": F("count", "preemptions since the start"),
    # what empties the cache
    "used_blocks": F("blocks", "blocks in use by running requests"),
    "level": F("", "1: weights are kept in CPU memory; 2: they are discarded"),
    "seconds": F("s", "duration"),
    "freed": F("GiB", "memory that was freed"),
    "used": F("GiB", "memory still in use"),
    "tags": F("", "parts that wake up; None for all"),
    "name": F("", "name of the adapter; requests use it as the model name"),
    "lora_loaded.path": F("", "where the adapter was loaded from"),
    "lora_reloaded.path": F("", "where the adapter was loaded from, both times"),
    # requests
    "request": F("", "id of the request"),
    "prompt": F("", "prompt in quotes, its newlines as \\n, then parameters and token ids"),
    "params": F("", "sampling parameters, then the LoRA adapter"),
    "host": F("", "address of the client"),
    "method": F("", "method of the request"),
    "access.path": F("", "path of the request; requests to /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages generate text"),
    "http": F("", "version of the protocol"),
    "status": F("code", "status of the answer", {200.0: "answered"}),
    "reason": F("", "the status in words"),
    # connectors to caches outside
    "offloaded_tokens": F("tokens", "tokens found in offloaded memory, after the tokens in GPU memory", _NOTHING),
    "gpu_tokens": F("tokens", "tokens found in the engine's own prefix cache", _NOTHING),
    "lookup.total": F("tokens", "length of the prompt; for a preempted request including the tokens generated so far"),
    "lookup_pending.total": F("tokens", "length of the prompt"),
    "storing.total": F("tokens", "tokens of the request so far"),
    "stored.total": F("tokens", "tokens of the request so far"),
    "retrieved.total": F("tokens", "tokens of the request so far"),
    "hit": F("tokens", "tokens from the beginning of the prompt that LMCache holds, including those in GPU memory", _NOTHING),
    "load": F("tokens", "tokens that LMCache holds beyond the engine's own prefix cache", _NOTHING),
    "min_retrieve": F("tokens", "minimum number of tokens to load; fewer are computed instead"),
    "storing.stored": F("tokens", "tokens to copy"),
    "stored.stored": F("tokens", "tokens copied", _NOTHING),
    "skipped": F("tokens", "tokens that LMCache has already"),
    "required": F("tokens", "tokens that were to be loaded"),
    "retrieved": F("tokens", "tokens that were loaded", {0.0: "nothing: the tokens are computed"}),
    "size": F("GiB", "KV cache that was moved"),
    "cost": F("ms", "duration"),
    "throughput": F("GiB/s", "size / time"),
    "offload": F("ms", "time to copy out of GPU memory"),
    "put": F("ms", "time to store the KV cache"),
    "role": F("", "SCHEDULER searches for KV cache, WORKER moves it"),
    "metadata": F("", "model, ranks and shape of the cache; None in the scheduler"),
    "source": F("", "file, line and module that print the line"),
}  # fmt: skip

PAIRS: dict[str, Field] = {
    "stats.KV cache usage": F("%", _USAGE + ". The word before it is the device"),
    "stats.Prefix cache hit rate": F("%", "share of the looked-up tokens (in 0.8: blocks) that were found in the prefix cache. It covers the last 1,000 requests since the start or the last reset, not the interval", {0.0: "nothing was found; 0.7.3 always prints 0.0, and versions up to 0.30 print 0.0 before any lookup and with prefix caching off"}),
    "stats.External prefix cache hit rate": F("%", "share of the tokens missing in the prefix cache that a connector found, over the last 1,000 requests; printed after the first lookup"),
    "stats.MM cache hit rate": F("%", "share of images and other inputs whose preprocessing was cached, over the last 1,000 requests; it counts items, not tokens"),
    "stats.Deferred": F("requests", "waiting requests that the scheduler skipped"),
    "stats.KV fetch": F("requests", "requests whose KV cache comes from a connector, by progress"),
    "stats.Preemptions": F("count", "preemptions in the interval; versions up to 0.33 never print this field, even after preemptions"),
    "stats.Corrupted": F("requests", "requests with values that are not numbers"),
    "iteration.KV cache usage": F("%", _USAGE + ". The word before it is the device"),
    "iteration.encoder inputs": F("count", "images and other inputs encoded in this step"),
    "iteration.encoder output embeddings": F("count", "embeddings made from these inputs"),
    "speculation.Draft acceptance rate": F("%", "share of the drafted tokens that were accepted"),
    "speculation.Avg Draft acceptance rate": F("%", "share of the drafted tokens that were accepted"),
    "speculation.Mean acceptance length": F("tokens", "tokens per step, including the token that the model itself adds"),
    "speculation.Accepted throughput": F("tokens/s", "accepted draft tokens of the interval"),
    "speculation.Drafted throughput": F("tokens/s", "draft tokens of the interval"),
    "speculation.Accepted": F("tokens", "accepted draft tokens of the interval"),
    "speculation.Drafted": F("tokens", "draft tokens of the interval"),
    "speculation.Per-position acceptance rate": F("share", "share of accepted draft tokens by position in the draft"),
}  # fmt: skip
"""Pairs in ``more``, by message and printed name."""


def field(message: str, name: str) -> Field | None:
    """Return the description of a field of a message, or None when there is none."""
    return FIELDS.get(f"{message}.{name}") or FIELDS.get(name)


def pair(message: str, name: str) -> Field | None:
    """Return the description of a pair by its printed name, ``CPU KV cache usage`` as well; None when there is none."""
    plain = "KV cache usage" if name.endswith(" KV cache usage") else name
    return PAIRS.get(f"{message}.{plain}")


MEANINGS: dict[str, str] = {
    # statistics
    "stats": "Statistics of one engine since the previous such line, normally 10 seconds before (5 seconds in 0.7). Throughputs are of this interval; the hit rate covers the last 1,000 requests. No field is about a single request. A busy engine prints the line repeatedly; an idle engine prints it once more, and then only at the debug level.",
    "stats_v0": "Statistics of the V0 engine (0.11 and older) since the previous such line. If prefix caching is on, the next line shows the hit rate.",
    "hit_rate_v0": "Hit rates of the V0 engine's prefix cache since its start, for blocks in GPU and in CPU memory. Printed only if prefix caching is on.",
    "iteration": "One step of the engine (--enable-logging-iteration-details). Context tokens are computed prompt tokens; the line does not count reused tokens. A dummy step computes nothing: an idle data-parallel rank makes it because all ranks make their steps together.",
    "speculation": "Speculative decoding is on; the line shows how many draft tokens were accepted since the previous line. With EAGLE and MTP, the last matching block of every lookup is normally recomputed.",
    "stats_off": "There is more than one API server process, so the statistics lines are not printed at all: this log shows no hit rate. That does not mean a hit rate of 0. --api-server-count 1 enables them (0.10.2 and newer).",
    "stats_custom": "The statistics lines were turned off with --disable-log-stats; another logger still receives the numbers.",
    "api_servers": "Data parallelism starts one API server process per rank by default. With more than one, statistics lines are not printed.",
    # start
    "version": "The version of vLLM: the server starts, with an empty cache.",
    "model": "The model that is served (second line of the banner).",
    "args": "All options of the server with their values, defaults included (0.8 and older). The resulting settings are in `Initializing a V1 LLM engine`.",
    "args_given": "Only the options that were set. `Initializing a V1 LLM engine` shows the resulting settings.",
    "engine_start": "The configuration that the engine uses: enable_prefix_caching shows whether there is a prefix cache. Every engine process prints this line, so with data parallelism every rank prints it.",
    "architecture": "The architecture of the model. It decides whether all layers are plain attention or some keep a recurrent state, which can be resumed only at a few token positions.",
    "max_model_len": "The longest request, prompt and answer together.",
    "chunked_prefill": "Long prompts are computed in chunks; the number is the maximum of tokens per step. On models with a recurrent state, states are kept where a chunk ends.",
    "ready": "The engine is ready, and the API server will answer soon.",
    "engine_ready": "The engine has loaded the model and allocated its KV cache, which is empty.",
    # sizes of blocks
    "attention_block": "On a model with a recurrent state the blocks of the attention layers are enlarged until one block is as large as a state. Only whole blocks are reused: a common prefix that is shorter than one block is recomputed, unless finer hits are possible (--prefix-match-unit, 0.26 and newer).",
    "mamba_padding": "The recurrent state is padded to the size of an attention block. The padding costs memory and does not affect reuse.",
    "block_size": "The attention backend decides the block size. Only whole blocks are reused: a common prefix that is shorter than one block is recomputed.",
    "group_sizes": "Block sizes of the groups of layers that share a kind of cache, on models with more than one kind of cache.",
    "lcm_block": "Least common multiple of the block sizes of all groups. A prefix can be reused up to a multiple of this number, unless finer hits are possible.",
    # models with a recurrent state
    "mamba_mode": "Prefix caching is on; the mode shows where states of recurrent layers are kept. align: where a chunk or a prompt ends; all: at every block. A shared prefix is reused only up to a kept state.",
    "mamba_mode_none": "Prefix caching is off, so no state of recurrent layers is kept.",
    "mamba_mode_ignored": "The option for the mode of the recurrent layers' cache will be removed; newer versions always keep states as in mode align.",
    "mamba_experimental": "Prefix caching is on for a model with recurrent layers, which is experimental in this version.",
    "mamba_align": "The model cannot keep a state at every block, so states are kept where a chunk or a prompt ends. Prefix caching stays on.",
    "off_hybrid": "Prefix caching is off although it was requested. This version does not support it for this kind of model (0.10.2 to 0.14; 0.16 and newer do).",
    # why prefix caching is off
    "off_attention": "Prefix caching is off: the model has non-causal attention, so the cache of a token depends on later tokens.",
    "off_encoder_only": "Prefix caching is off: this instance only encodes images or sound and computes no prompts.",
    "off_batch_invariant": "Prefix caching is off: the attention backend cannot combine it with batch invariance (VLLM_BATCH_INVARIANT).",
    "off_encoder_decoder": "Prefix caching and chunked prefill are off: encoder-decoder models support neither.",
    "off_cpu": "Prefix caching is off: this version does not support it on this kind of CPU.",
    "off_mla": "Prefix caching and chunked prefill are off: this version supports neither for multi-head latent attention on this device (0.7: on any device).",
    "off_amx": "Prefix caching and chunked prefill are off: on CPUs with AMX this version cannot combine them with linear attention.",
    "off_ocr": "Prefix caching is off for this model: its state during generation cannot be reused.",
    "off_multimodal": "Prefix caching is off although it was requested: the V0 engine does not support it for models that take images or sound.",
    "off_prompt_embeds": "Prefix caching is off although it was requested: 0.11.0 cannot combine it with prompts given as embeddings.",
    "off_context_parallel": "Prefix caching and chunked prefill are off: 0.12 cannot combine them with parallel contexts in prefill.",
    "off_tpu": "Prefix caching is off: 0.7 does not support it on TPUs.",
    "default_off": "Prefix caching is off by default for this model; an option can turn it on.",
    "default_on": "Prefix caching is on by default for this model.",
    "unsupported": "The reason why prefix caching is off by default for this kind of model. An option may still turn it on.",
    "supported": "Prefix caching is on by default for this kind of model.",
    "unofficial": "Prefix caching was requested for a model for which this version does not guarantee it.",
    "events_without_cache": "KV cache events were requested, but prefix caching is off: there is nothing to report or reuse.",
    "events_off": "A publisher of KV cache events is configured, but the events are off. Reuse is not affected, but routers do not learn what is cached.",
    "offload_off": "Prefix caching is off, so no KV cache is moved to CPU memory: evicted prefixes are lost.",
    # what limits hits
    "fine_grained_off": "Only whole blocks of the largest block size are reused: some layers of the model cannot resume within a block.",
    "hybrid_manager_off": "All layers keep as much KV cache as full-attention layers: fewer tokens fit, and cached prefixes are evicted earlier.",
    "eagle_keeps_block": "With EAGLE or MTP the last matching block is normally recomputed, because the drafter needs its output. Here this block is reused.",
    "eagle_dense": "With EAGLE on a model with a recurrent state, states are kept at every block, not only at a few positions.",
    "system_merged": "The chat template requires system messages at the start, so vLLM moves later system messages there. Every new one changes the start of the prompt, and the rest of the prompt is recomputed (0.31 and newer; printed once).",
    "random_seed": "Hashes of blocks differ from process to process: shared caches find no blocks of other instances. Reuse within this instance is not affected.",
    # capacity
    "kv_size": "How many tokens of running requests and cached prefixes fit into the KV cache together. If more space is needed, cached prefixes are evicted; the log does not show evictions.",
    "concurrency": "How many requests of the longest length fit into the KV cache at once.",
    "blocks": "How many blocks the KV cache has (0.11 and older); multiplied by the block size, its capacity in tokens.",
    "blocks_override": "The number of blocks was given by hand (--num-gpu-blocks-override) instead of the number that fits into memory.",
    "preemption": "The KV cache is full: a running request lost its blocks and is recomputed later, or is swapped out (V0 engine). V1 logs no preemptions; only /metrics counts them.",
    # what empties the cache
    "reset_asked": "A client called POST /reset_prefix_cache.",
    "reset": "The prefix cache is empty now, and the hit rate starts again. The cause is a call of /reset_prefix_cache, new weights, or sleep.",
    "reset_failed": "The prefix cache was not emptied, because requests were running.",
    "sleep_asked": "A client called POST /sleep: the KV cache is freed.",
    "sleep": "The engine sleeps: its KV cache is gone, and after it wakes up, every prompt is recomputed.",
    "sleep_freed": "Memory freed by going to sleep, including the KV cache.",
    "wake_asked": "A client called POST /wake_up.",
    "wake": "The engine is awake, with an empty KV cache.",
    "lora_loaded": "A LoRA adapter was loaded. Requests with different adapters share no cache.",
    "lora_reloaded": "A LoRA adapter was loaded again under its name: tokens computed with the old weights are still reused, so answers may be wrong.",
    # requests
    "request": "A received request. Up to 0.11.0 the line has the text of the prompt; newer versions print only sampling parameters. No line of vLLM shows how much of the prompt was reused.",
    "request_details": "The text and the tokens of a request's prompt (debug level, 0.11.1 and newer).",
    "request_added": "A request was handed to the engine.",
    "access": "An HTTP request was answered: its path and status.",
    # connectors to caches outside
    "connector": "A connector moves KV cache between this engine and an external store, and can restore evicted prefixes from it.",
    "offload_hit": "How many tokens were found for a request: in GPU memory, and after these in offloaded memory.",
    "lookup": "How many tokens of a request's prompt LMCache holds, and how many of these are not in GPU memory and have to be loaded. From LMCache 0.3.15 on the line also shows how many tokens the engine's own prefix cache has.",
    "lookup_pending": "LMCache is still searching for a request's prompt: the request waits.",
    "storing": "LMCache is about to copy a request's KV cache.",
    "mp_lookup": "How many tokens of a request's prompt the engine's own prefix cache has, and how many LMCache will load.",
    "lmcache_start": "LMCache runs inside vLLM; the line has the versions of both.",
    "lmcache_config": "The configuration of LMCache: where it keeps KV cache, how much, and the chunk size in tokens.",
    "stored": "LMCache has copied a request's KV cache.",
    "retrieve_short": "LMCache has loaded fewer tokens than it reported. The missing tokens are recomputed; if they are treated as loaded, the answer may be wrong. The line names no request.",
    "retrieved": "LMCache has loaded KV cache for a request: these tokens are not recomputed.",
}  # fmt: skip
