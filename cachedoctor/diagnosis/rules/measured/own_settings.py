"""Settings of programs whose logs have numbers of each request, in the words of each program."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit

_ROOM = {
    "omlx": "If earlier conversations continue, give oMLX more cache: --hot-cache-max-size in memory, or --paged-ssd-cache-dir and --paged-ssd-cache-max-size on disk.",
    "ds4": "Set --kv-disk-dir FOLDER, which saves a conversation on disk when another conversation replaces it, up to --kv-disk-space-mb. ds4-server keeps only one conversation in memory.",
    "vllm-mlx": "If earlier conversations continue, give the cache more memory: --cache-memory-mb.",
    "koboldcpp": "Set --smartcache N (newer versions of KoboldCpp) to keep N more conversations in memory; without this option KoboldCpp keeps one conversation. "
    "--noshift and --nofastforward disable reuse.",
    "ollama": "Raise OLLAMA_NUM_PARALLEL (1 by default): an ollama runner keeps this many conversations, each with its own context. More conversations need more memory.",
    "lmstudio": "Try a newer version of LM Studio, whose llama.cpp engine keeps more conversations in memory. This engine has no setting for their number.",
    "lmstudio-mlx": "LM Studio has no setting for the cache of its MLX engine.",
    "llama-cpp-python": "Start the llama-cpp-python server with --cache true and --cache_size BYTES, or call llm.set_cache(LlamaRAMCache(capacity_bytes=...)) in a program. Without a cache llama-cpp-python keeps one conversation.",
    "tabbyapi": "Raise cache_size in config.yml, in tokens (a multiple of 256, at least max_seq_len). TabbyAPI shares one cache among all conversations.",
    "ik_llama.cpp": "Start ik_llama.cpp with --cache-ram N (MiB), which saves conversations that lose their slot in main memory.",
    "mlx-vlm": "Set APC_ENABLED=1 in the server's environment: prefix reuse is off without it. APC_NUM_BLOCKS sets the cache size (default 2048 blocks of 16 tokens).",
}
BACK = {
    "omlx": (
        "oMLX stores a prompt in blocks (2,048 tokens if the model has recurrent or sliding-window layers) and resumes at the end of a block for which all layers are stored.",
        "Try a newer version of oMLX. It has no setting for the block size, which depends on the model.",
    ),
    "ds4": (
        "ds4-server continues the conversation in memory only if the prompt begins with all of that conversation. Otherwise ds4-server uses the longest matching checkpoint on disk. Without a matching checkpoint ds4-server computes the whole prompt.",
        "Keep checkpoints with --kv-disk-dir FOLDER. --kv-cache-continued-interval-tokens sets the distance between checkpoints (default 10000), and --kv-cache-cold-max-tokens the maximum length of a first prompt that is saved (default 30000).",
    ),
    "ollama": (
        "The MLX runner goes back to the last snapshot before the point where the new prompt diverges from the old prompt; the tokens in between are recomputed.",
        "Try a newer version of ollama, which has no setting for the distance between snapshots.",
    ),
    "koboldcpp": (
        "The model has sliding-window layers, which keep only the end of a text. If the prompt diverges before that end, the context cannot be reused.",
        "Start without --useswa, which keeps the whole context but takes more memory. Or raise the SWA padding, so the context can go back further.",
    ),
    "vllm-mlx": (
        "The stored entry is longer than the common prefix, and this model's memory cannot be truncated to that length: recurrent and sliding-window layers hold only "
        "the end of a text.",
        "With Rapid-MLX, set --hybrid-cache-entries (0 by default), which keeps entries of such models for prompts that continue an entry. vllm-mlx has no such setting; use a model with full attention in all layers.",
    ),
}


def reason(said: kit.Incident) -> str:
    """The reason that the program prints for a difference, if it is one word: `` (token-mismatch)``."""
    return f" ({said.field})" if said.field and " " not in said.field else ""


def compare() -> kit.Remedy:
    """Advise to compare the bodies of two requests, which show the change."""
    return kit.Remedy(
        "Compare the bodies of two requests of one conversation: the bodies show what the client changed.",
        ["cachedoctor diff first.json second.json"],
    )


def room(session: kit.Session) -> list[kit.Remedy]:
    """Describe how the program keeps more conversations."""
    words = _ROOM.get(session.engine)
    return [] if words is None else [kit.Remedy(words)]


def back(session: kit.Session) -> tuple[str, kit.Remedy]:
    """Explain why the program could not resume where a prompt diverges from its cache, and name the setting."""
    why, remedy = BACK[session.engine]
    return why, kit.Remedy(remedy)
