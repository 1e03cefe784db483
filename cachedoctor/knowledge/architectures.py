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


def is_hybrid(architecture: str) -> bool | None:
    """Whether the model keeps states beside keys and values; None for a name that says nothing."""
    return True if architecture.startswith((*HYBRID, *RECURRENT)) else None
