"""Kinds of memory by the name of a model's architecture, as vLLM and SGLang print it. Data only.

A name that is not here may be of any kind.
"""

from __future__ import annotations

HYBRID = (
    "Qwen3Next", "Qwen3_5", "Qwen3_6", "KimiLinear", "Jamba", "Bamba", "FalconH1", "Zamba2", "NemotronH",
    "GraniteMoeHybrid", "Plamo2", "Plamo3", "Lfm2", "MiniMaxText01", "OlmoHybrid", "BailingMoeV2_5", "JetNemotron",
    "Nemotron_Nano", "Phi4Flash", "MiniMaxM1", "BailingMoeLinear",
)  # fmt: skip
"""Beginnings of architectures with layers that hold a state instead of keys and values (gated delta nets, Mamba, short
convolutions) beside attention."""
RECURRENT = ("Mamba", "FalconMamba", "RWKV")
"""Those with nothing but such layers."""

SLIDING = (
    "Gemma2", "Gemma3", "Gemma4", "GptOss", "Cohere2", "Exaone4", "Olmo3", "MiMoV2", "DeepseekV4", "Step3p5",
)  # fmt: skip
"""Beginnings of architectures some of whose attention layers see the last tokens only."""


def is_sliding(architecture: str) -> bool:
    """Whether the model has layers with a sliding window beside others; False for a name that says nothing."""
    return architecture.startswith(SLIDING)


def is_hybrid(architecture: str) -> bool | None:
    """Whether the model keeps states beside keys and values; None for a name that says nothing."""
    return True if architecture.startswith((*HYBRID, *RECURRENT)) else None
