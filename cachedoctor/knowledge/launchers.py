"""Which settings of ollama, LM Studio and Jan stand for options of llama-server, and what else they can set. Pure data.

Sources: ollama, envconfig/config.go and docs/faq.mdx (OLLAMA_NUM_PARALLEL requests at a time, each with a context of
OLLAMA_CONTEXT_LENGTH). LM Studio, https://lmstudio.ai/docs/app/advanced/parallel-requests (Max Concurrent Predictions),
``lms load --parallel N --context-length N``; all else has no setting of its own, and a field for parameters of
llama.cpp takes it since September 2026 (lmstudio-bug-tracker issue 2086). GPU Offload and Evaluation Batch Size:
https://lmstudio.ai/docs/cli/load, ``eval_batch_size`` of its REST API. Jan, extensions/llamacpp-extension/settings.json
(titles, and ``llamacpp_env``: "KEY=VALUE, separated by ';'") and src/preset.ts, which adds slots of its own.
"""

from __future__ import annotations

from cachedoctor.model import Launcher

OLLAMA = {
    "parallel": "OLLAMA_NUM_PARALLEL",
    "ctx_size": "OLLAMA_CONTEXT_LENGTH",
    "cache_type_k": "OLLAMA_KV_CACHE_TYPE",
}
"""Key of an option of llama-server -> variable of ollama."""

LM_STUDIO = {"parallel": "Max Concurrent Predictions", "ctx_size": "Context Length"}
"""Key of an option of llama-server -> setting of LM Studio's model loader."""

LM_STUDIO_FIELD = "in LM Studio's advanced load parameters, as parameters of llama.cpp (since September 2026)"
"""Where all other options go."""

LM_STUDIO_OLD = "LM Studio before September 2026 has no setting for {options}"

LM_STUDIO_PROMPTS = ["lms log stream --source model --filter input"]
"""Prints every prompt as the model gets it: https://lmstudio.ai/docs/cli/log-stream."""

JAN = {
    "parallel": "Parallel Sequences",
    "ctx_size": "Context Size (of the model)",
    "cache_ram": "Prompt Cache RAM (MiB)",
    "cache_reuse": "Cache Reuse",
    "cache_type_k": "KV Cache K Type",
    "cache_type_v": "KV Cache V Type",
}
"""Key of an option of llama-server -> setting of Jan."""

JAN_SETTINGS = "in Jan: Settings > Model Providers > Llama.cpp"

JAN_VARIABLES = "Environmental variables"
"""The setting that takes all other options."""

JAN_LATER = frozenset({"cache_ram", "cache_reuse"})
"""Settings that Jan has had since 2026 only."""

FASTER: dict[Launcher, str] = {
    "lm-studio": "more GPU Offload, a larger Evaluation Batch Size",
    "jan": "more GPU Layers, a larger uBatch Size",
    "ollama": "more layers on the GPU",
}
"""What makes prompts faster, as its settings call it; elsewhere they are options of llama-server."""

FIXED_LOG: dict[Launcher, str] = {"lm-studio": "LM Studio"}
"""Launchers whose users set no variable and no level of llama.cpp's log."""

HANDS_ON: dict[Launcher, str] = {"ollama": "ollama serve", "jan": "Jan"}
"""Launchers that give their own environment, or variables of a setting, to the llama-server that they start, by what to
start anew (ollama, llm/llama_server.go: ``cmd.Env = os.Environ()``; https://github.com/ollama/ollama/pull/18265)."""

NAMES = {
    "shell": "a shell", "docker": "docker run", "compose": "docker compose", "systemd": "systemd",
    "kubernetes": "Kubernetes", "llama-swap": "llama-swap", "ollama": "ollama", "lm-studio": "LM Studio",
    "jan": "Jan",
}  # fmt: skip
"""Launchers as people call them."""
