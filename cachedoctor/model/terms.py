"""Closed vocabularies shared by all packages, and the thresholds that a user may set."""

from __future__ import annotations

from typing import Literal

import msgspec

SettingName = Literal[
    # llama-server
    "arch", "cache_idle_slots", "cache_prompt", "cache_ram_mib", "cache_reuse_supported", "checkpoint_min_step",
    "context_shift_supported", "ctx_checkpoints", "is_swa_any", "kv_purged", "kv_unified", "mmproj", "n_batch", "n_ctx",
    "n_ctx_train", "n_parallel_auto", "n_slots", "n_swa", "n_ubatch", "partial_removal", "prompts_given",
    "ram_evictions", "reasoning_preserve", "refused_option", "restarted", "slots_debug", "slots_n_diff",
    "speculative_checkpoints", "ssm_d_inner", "swa_cells", "swa_full", "verbosity",
    # ollama
    "restore_cut",
    # vLLM and SGLang
    "anthropic_requests", "architecture", "attention_block", "block_size", "billing_header", "cache_kind",
    "chat_requests", "chunked_prefill", "data_parallel", "device", "disaggregation", "dynamic_chunks", "hicache",
    "hybrid_ssm", "kv_tokens", "mamba_states", "mamba_strategy", "match_unit", "mem_fraction", "mixed_chunks",
    "lcm_block", "page_size", "pooling", "prefix_caching", "prefix_caching_asked", "radix_cache", "retention_interval",
    "schedule_policy", "speculative",
]  # fmt: skip
"""Names of the server settings that the code looks up."""

Shows = Literal[
    "accounting",  # length and reuse of prompts
    "adapters",  # a change of LoRA adapters
    "checkpoint_counts",  # how many checkpoints a request looked at, restored and made
    "checkpoints",  # a checkpoint that was made, looked at, restored or erased
    "dropped_checkpoints",  # one that left a full list
    "forcing",  # that all of a prompt is recomputed
    "images",
    "launches",
    "makes_checkpoints",  # the server makes checkpoints, or says that it will
    "ram_cache",  # the RAM prompt cache at work
    "ram_saves",  # what it takes
    "ram_search",  # whether it is searched for a better prompt
    "releases",
    "rewinding",  # memory that can only go back to checkpoints
    "slot_count",
    "slot_file_checkpoints",  # that a slot file brought checkpoints
    "slot_files",
    "text",  # what stands where two prompts diverge
]
"""The facts that the lines of a log can show."""

OF_CLIENTS, OF_MEMORY, OF_SLOTS, OF_INPUT = "CD1", "CD2", "CD3", "CD9"
"""Prefixes of rule codes: client changes (any server); memory that could not roll back; slots taken although the client
changed nothing; missing data in the log (no cause named)."""


class Threshold(msgspec.Struct, frozen=True):
    """A limit that decides how a request is reported."""

    name: str
    unit: str
    default: int
    reason: str


WARN_TOKENS = Threshold(
    "warn-tokens",
    "tokens",
    1000,
    "a cause with at least this total cost is a warning, below it a note; 1,000 tokens are many seconds on a "
    "CPU, a fraction of a second on a large GPU",
)
MIN_PROMPT_TOKENS = Threshold(
    "min-prompt-tokens",
    "tokens",
    1000,
    "requests with a shorter prompt cost too little to matter and are not checked",
)
THRESHOLDS = (WARN_TOKENS, MIN_PROMPT_TOKENS)


class AnalysisOptions(msgspec.Struct, frozen=True):
    """What the user decided; without arguments the defaults."""

    warn_tokens: int = WARN_TOKENS.default
    """Tokens."""
    min_prompt_tokens: int = MIN_PROMPT_TOKENS.default
    """Tokens."""
    ignored: frozenset[str] = frozenset()
    """Codes of disabled rules: they are evaluated, so that no symptom rule replaces them, but not reported."""


DEFAULTS = AnalysisOptions()
