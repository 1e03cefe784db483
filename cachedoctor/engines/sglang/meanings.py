"""What every message of SGLang says about the prefix cache, in a sentence or two: data for people who read a log line.

Keyed by the id of a message, the same over all its wordings. Source: the code that prints the messages, SGLang 0.4.3
to 0.5.23.
"""

from __future__ import annotations

_OFF = " Nothing is reused: every prompt is computed from its first token."

MEANINGS: dict[str, str] = {
    # batches
    "prefill": "Prompt tokens that are computed together, of one request or several: a batch is neither a request nor a prompt. #cached-token is what the requests that were admitted in it reuse; the further chunks of a long prompt print 0 there. Sums of #new-token and #cached-token over a time are right, a single line is only about one request if #new-seq is 1 and it is no chunk.",
    "fill": "A batch of prompts in the words of early 2024: what was reused and computed of all prompts in it, and the share of all since the start.",
    "decode": "Requests that write their answers, every 40 steps (--decode-log-interval). Its usage tells how much of the memory running requests hold; what only the cache holds is not in it.",
    # start
    "server_args": "The settings of the server, as far as they are resolved at that time. disable_radix_cache=False does not yet mean that the cache is on: the model or another option may switch it off behind this line.",
    "weights_loaded": "The model is loaded. Its class tells whether it is a hybrid (Mamba, linear attention), whose cache has limits of its own.",
    "capacity": "How many tokens the KV pool holds, running requests and cached prefixes together, and how long the chunks are in which long prompts are computed.",
    "tree_cache": "The kind of cache that is really in use. ChunkCache and its like keep nothing between requests.",
    "unified_tree": "The one tree for all kinds of models is in use, with a component for each kind of memory of this model.",
    "ready": "The server takes requests. The one that warmed it up was a short prompt, and is no request of a user.",
    "sigterm": "The server ends, and its cache with it.",
    # hybrid and sliding-window models
    "mamba_pool": "The model is a hybrid: beside the KV pool it has a pool of states. A prefix is only reused up to a position whose state is kept, so this pool limits reuse as well.",
    "swa_pool": "Layers with a sliding window have a pool of their own. A prefix is only reused if the window before its end is still there.",
    "extra_buffer": "States of a hybrid model are also kept inside a prompt, at multiples of a chunk, so that prompts that share a beginning can reuse it.",
    "extra_buffer_off_decode": "A decode server keeps no cache, so states are not kept inside prompts either.",
    "extra_buffer_small_chunk": "Chunks of prefill are shorter than the distance of kept states, so that some states are never kept and the prefix there cannot be reused.",
    "no_buffer_page_one": "The strategy no_buffer needs pages of one token. It keeps states only where a chunk, a prompt or an answer ended.",
    "overlap_off_mamba": "The cache of this hybrid model works, at the cost of a slower scheduler. States are kept only where a chunk, a prompt or an answer ended.",
    "overlap_off_no_buffer": "The strategy no_buffer is in use: the cache works, at the cost of a slower scheduler, and states are kept only where a chunk, a prompt or an answer ended.",
    "no_buffer_speculative_refused": "The server does not start: speculative decoding and the cache go together only with the strategy extra_buffer.",
    # the cache is switched off
    "off_qwen_vl": "The cache is off for this model with images." + _OFF,
    "off_decode": "A server that only decodes keeps no cache; prefixes are reused by the server that does the prefill.",
    "radix_on_decode": "The decode server keeps a cache as well, so that a prefix it has need not be sent to it again.",
    "decode_server_routing": "Each data-parallel rank of the decode server has a cache of its own: a conversation that changes ranks finds nothing.",
    "off_dual_chunk": "Dual-chunk attention cannot reuse prefixes." + _OFF,
    "off_hybrid_gdn": "This version has no cache for hybrid models of this kind." + _OFF,
    "off_deterministic": "Deterministic inference cannot reuse prefixes with this attention backend; fa3 and triton can." + _OFF,
    "off_arch": "This version has no cache for this architecture." + _OFF,
    "off_diffusion": "A diffusion model computes its text as a whole." + _OFF,
    "off_trtllm": "The cache of a hybrid model with the strategy no_buffer needs pages of one token, which this attention backend does not have." + _OFF,
    "off_spec": "Speculative decoding and the cache of this hybrid model do not go together in this version." + _OFF,
    "off_rocm": "Speculative decoding and the cache of this hybrid model do not go together on AMD in this version." + _OFF,
    "off_whisper": "Whisper has no prompts that could be shared." + _OFF,
    "off_multimodal": "A model with images that runs on the Transformers backend could reuse the wrong image." + _OFF,
    "off_mis": "--enable-mis scores several items in one sequence, which cannot share a cache." + _OFF,
    "off_prefix_lm": "The prompt is read in both directions, so that a beginning of it is worth nothing by itself." + _OFF,
    "off_embedding": "An embedding model computes every text as a whole." + _OFF,
    "off_decision": "A decision model reads the prompt in both directions and as a whole." + _OFF,
    # memory, resets
    "retracted": "The KV pool was full: running requests lose their memory and wait again. They come back as new requests in a prefill batch, whose tokens count once more.",
    "retract_aborted": "A request was given up because there was no memory for it.",
    "flushed": "The whole cache was emptied (POST /flush_cache, new weights): the next request of every conversation is computed from its first token.",
    "flush_refused": "The cache was not emptied, because requests were running or waiting.",
    "flush_timeout": "The cache was not emptied: the server did not become idle in time.",
    "weights_update": "New weights are loaded into the running server; the cache is emptied, since what it holds was computed with the old ones.",
    "prompt_truncated": "The prompt is longer than the server takes, and its end is cut off.",
    # HiCache
    "hicache_host": "Main memory for prefixes that leave the GPU (HiCache): they are loaded back instead of being computed again.",
    "hicache_host_small": "The pool in main memory is smaller than that of the GPU: it holds little that the GPU does not hold by itself.",
    "hicache_prefetch": "A prefix was fetched from storage to main memory before its request began.",
    "hicache_discarded": "A prefix that was fetched from storage is thrown away, because a part that the model needs with it (states, window) is missing: it is computed.",
    "hicache_declined": "Storage holds a prefix that cannot be used as it is: it is computed.",
    "hicache_fetch_failed": "A page could not be read from storage: the prompt is computed from there on.",
    "hicache_shrank": "A part of the prefix left the cache between the lookup and the start of the request; storage is asked again.",
    "hicache_lookups_over": "Storage was asked as often as allowed; the rest of the prompt is computed.",
    "hicache_dropped": "Prefixes leave the GPU without a copy, because main memory is full: they are computed again when they come back.",
    # requests, with --log-requests
    "received": "A request came in (--log-requests). From level 2 on the line holds its prompt.",
    "finished": "A request is answered: prompt_tokens and cached_tokens of meta_info are the truth about this one request.",
    "access": "An answer was sent. It says nothing of the cache.",
}  # fmt: skip
