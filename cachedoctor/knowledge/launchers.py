"""Which settings of ollama and LM Studio stand for options of llama-server, and what else they can set. Pure data.

Sources: ollama, envconfig/config.go and docs/faq.mdx (OLLAMA_NUM_PARALLEL requests at a time, each with a context of
OLLAMA_CONTEXT_LENGTH). LM Studio, https://lmstudio.ai/docs/app/advanced/parallel-requests (Max Concurrent Predictions),
``lms load --parallel N --context-length N``; all else has no setting of its own, and a field for parameters of
llama.cpp takes it since September 2026 (lmstudio-bug-tracker issue 2086).
"""

from __future__ import annotations

OLLAMA = {
    "parallel": "OLLAMA_NUM_PARALLEL",
    "ctx_size": "OLLAMA_CONTEXT_LENGTH",
    "cache_type_k": "OLLAMA_KV_CACHE_TYPE",
}
"""Key of an option of llama-server -> variable of ollama."""

LM_STUDIO = {"parallel": "Max Concurrent Predictions", "ctx_size": "Context Length"}
"""Key of an option of llama-server -> setting of LM Studio's model loader."""

LM_STUDIO_ELSE = (
    "LM Studio has no setting of its own for {options}; versions since September 2026 take options of llama.cpp in the "
    "advanced load parameters, older ones cannot set it"
)
"""What to say of all other options."""

NAMES = {
    "shell": "a shell", "docker": "docker run", "compose": "docker compose", "systemd": "systemd",
    "kubernetes": "Kubernetes", "llama-swap": "llama-swap", "ollama": "ollama", "lm-studio": "LM Studio",
}  # fmt: skip
"""Launchers as people call them."""
