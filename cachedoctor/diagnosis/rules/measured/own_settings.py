"""What can be set in a program whose log has numbers of each request, for its rules: in its own words."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit

_ROOM = {
    "omlx": "If earlier conversations continue, give oMLX more room: --hot-cache-max-size for memory, --paged-ssd-cache-dir and "
    "--paged-ssd-cache-max-size for the disk.",
    "ds4": "ds4-server keeps one conversation in memory, and every other request replaces it: --kv-disk-dir FOLDER saves what is replaced, up to "
    "--kv-disk-space-mb.",
    "vllm-mlx": "If earlier conversations continue, give the cache more memory: --cache-memory-mb.",
    "koboldcpp": "KoboldCpp keeps one conversation: --smartcache N (newer versions) keeps N more in memory, and restores them. --noshift and "
    "--nofastforward disable reuse.",
    "ollama": "An ollama runner keeps OLLAMA_NUM_PARALLEL conversations (1 by default), each with its own context; more of them need more memory.",
    "lmstudio": "LM Studio has no setting for how many conversations it keeps in memory with this engine: newer versions of its llama.cpp engine do more.",
    "lmstudio-mlx": "What LM Studio's MLX engine keeps cannot be set there.",
    "llama-cpp-python": "llama-cpp-python keeps one conversation. Its server keeps more with --cache true and --cache_size BYTES; in a program, "
    "llm.set_cache(LlamaRAMCache(capacity_bytes=...)) does.",
    "tabbyapi": "TabbyAPI shares one cache among all conversations: cache_size in config.yml, in tokens, a multiple of 256 and at least max_seq_len.",
    "ik_llama.cpp": "ik_llama.cpp saves conversations that lose their slot to memory: --cache-ram N, in MiB.",
    "mlx-vlm": "Prefix reuse is off unless APC_ENABLED=1 is in the environment of the server; APC_NUM_BLOCKS is its size (2048 blocks of 16 tokens by "
    "default).",
}
BACK = {
    "omlx": (
        "oMLX stores a prompt in blocks (2,048 tokens if the model has recurrent or sliding-window layers) and resumes at the end of a block of which "
        "all layers are stored.",
        "This cannot be set in oMLX, which chooses the block size by the model: try a newer version.",
    ),
    "ds4": (
        "ds4-server continues the conversation in memory only if the prompt begins with all of it. Otherwise it uses the longest checkpoint on disk "
        "that matches, and without one it computes everything.",
        "Keep checkpoints: --kv-disk-dir with a folder, --kv-cache-continued-interval-tokens for their distance (10000 by default), and "
        "--kv-cache-cold-max-tokens, up to which a first prompt is saved (30000 by default).",
    ),
    "ollama": (
        "The MLX runner goes back to the last snapshot before the place where the new prompt diverges from the old one; the tokens in between are recomputed.",
        "This cannot be set in ollama: try a newer version.",
    ),
    "koboldcpp": (
        "The model has sliding-window layers, which keep the end of a text alone: where the prompt diverges further back, the context cannot be used.",
        "Without --useswa all of it is kept, which takes more memory; a larger SWA padding lets it go back further.",
    ),
    "vllm-mlx": (
        "The stored entry is longer than the common prefix, and this model's memory cannot be truncated to it: recurrent and sliding-window layers hold only "
        "the end of a text.",
        "Rapid-MLX keeps entries of such models for prompts that continue them with --hybrid-cache-entries (none by default). In vllm-mlx it cannot be "
        "set: use a model with full attention in all layers.",
    ),
}


def reason(said: kit.Incident) -> str:
    """The reason that the program prints for a difference, if it is one word of its own: `` (token-mismatch)``."""
    return f" ({said.field})" if said.field and " " not in said.field else ""


def compare() -> kit.Remedy:
    """Say that the bodies of two requests show what changed."""
    return kit.Remedy(
        "Compare the bodies of two requests of one conversation: they show what the client changed.",
        ["cachedoctor diff first.json second.json"],
    )


def room(session: kit.Session) -> list[kit.Remedy]:
    """Say how the program keeps more conversations."""
    words = _ROOM.get(session.engine)
    return [] if words is None else [kit.Remedy(words)]


def back(session: kit.Session) -> tuple[str, kit.Remedy]:
    """Say why the program could not resume where a prompt diverges from what it held, and what can be set."""
    why, remedy = BACK[session.engine]
    return why, kit.Remedy(remedy)
