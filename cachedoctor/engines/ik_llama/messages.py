"""Every log message of ik_llama.cpp's server that tells what a request reused, one row per wording.

Source: ``examples/server/server-context.cpp`` of ik_llama.cpp, and logs of its issues from 2026-02 to 2026-04. It has no
versions. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("chosen", "ik_llama", 0, 0, "I0", "======== Prompt cache: cache size: {held:d}, n_keep: {n_keep:d}, n_discarded_prompt: {n_discarded:d}, cache_ram_n_min: {least:d}, f_keep: {f_keep:f}, cache_ram_similarity: {threshold:f}",
      "======== Prompt cache: cache size: 11967, n_keep: 0, n_discarded_prompt: 0, cache_ram_n_min: 0, f_keep: 1.00, cache_ram_similarity: 0.50"),
    R("saving", "ik_llama", 0, 0, "I0", "- saving prompt with length {n_tokens:d}, total state size = {size_mib:f} MiB",
      " - saving prompt with length 2823, total state size = 113.480 MiB"),
    R("launched", "ik_llama", 0, 0, "I0", "slot is processing task | tid={tid:word} timestamp={timestamp:d} id_slot={slot:d} id_task={task:d}",
      'INFO [   launch_slot_with_task] slot is processing task | tid="127061612023808" timestamp=1772656428 id_slot=0 id_task=55'),
    # the common prefix, compared as tokens, as text (in tokens of the slot and of the prompt), and as text without blanks
    R("common", "ik_llama", 0, 0, "I0", "======== Cache: cache_size = {held:d}, n_past0 = {exact:d}, n_past1 = {in_slot:d}, n_past_prompt1 = {in_prompt:d}, n_past2 = {loose_in_slot:d}, n_past_prompt2 = {loose_in_prompt:d}",
      "======== Cache: cache_size = 11967, n_past0 =  11967, n_past1 =  11967, n_past_prompt1 = 11967,  n_past2 =  11967, n_past_prompt2 =  11967"),
    # before every batch of a prompt: the first one tells what was reused
    R("kept", "ik_llama", 0, 0, "I0", "kv cache rm [p0, end) | tid={tid:word} timestamp={timestamp:d} id_slot={slot:d} id_task={task:d} p0={p0:d}",
      'INFO [    batch_pending_prompt] kv cache rm [p0, end) | tid="127061612023808" timestamp=1772656428 id_slot=0 id_task=55 p0=11967'),
    R("timing", "ik_llama", 0, 0, "I0", "slot print_timing: id {slot:d} | task {task:d} |",
      "slot print_timing: id  1 | task -1 | "),
    R("computed", "ik_llama", 0, 0, "I0", "prompt eval time = {prompt_ms:f} ms / {computed:d} tokens ({token_ms:f} ms per token, {rate:f} tokens per second)",
      "prompt eval time =      21.47 ms /     1 tokens (   21.47 ms per token,    46.58 tokens per second)"),
    R("computed", "ik_llama", 0, 0, "I0", "slot print_timing: id {slot:d} | task {task:d} | prompt eval time = {prompt_ms:f} ms / {computed:d} tokens ({token_ms:f} ms per token, {rate:f} tokens per second)",
      "slot print_timing: id  0 | task 55 | prompt eval time =      21.47 ms /     1 tokens (   21.47 ms per token,    46.58 tokens per second)"),
    R("released", "ik_llama", 0, 0, "I0", "slot released | tid={tid:word} timestamp={timestamp:d} id_slot={slot:d} id_task={task:d} n_ctx={n_ctx:d} n_past={n_past:d} n_system_tokens={n_system:d} n_cache_tokens={n_cache:d} truncated={truncated:word}",
      'INFO [           release_slots] slot released | tid="127061612023808" timestamp=1772656427 id_slot=0 id_task=0 n_ctx=360192 n_past=11967 n_system_tokens=0 n_cache_tokens=11967 truncated=false'),
]
