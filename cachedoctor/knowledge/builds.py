"""Builds and releases of llama.cpp, what changed when, and the memory kinds of model architectures."""

from __future__ import annotations

import re

from cachedoctor.knowledge.late_patterns import late

SAMPLED = (
    5311, 5353, 5456, 5586, 5671, 5704, 5772, 5833, 5937, 6123, 6180, 6301, 6451, 6628, 6751, 6900, 7079, 7376, 7551,
    7710, 7827, 7964, 8156, 8352, 8353, 8672, 8929, 9093, 9294, 9538, 9713, 9873, 10068, 10229, 10566, 10809, 11063,
    11549,
)  # fmt: skip
"""Builds whose sources or binaries were read. A message first seen in one of these may date from the build after the
one before it."""

NEWEST = SAMPLED[-1]

LOGS_REDUCED = 9294
"""From here on the default level hides prompt length and reuse (PR #23021, between b9093 and b9181)."""

LOGS_REDUCED_AGAIN = 9873
"""From here on nearly all cache lines are TRACE, hidden by default (between b9713 and b9873)."""


RELEASES = {(0, 6, 0): 11429, (0, 7, 0): 11669, (0, 9, 0): 12110}
"""Builds of the releases with a version of their own, as far as known; the other releases are 0.1.0 (about b10470) to
1.0.0. ``version: 0.6.0-dev (build 11457, commit 5ad1c5da0)`` lies between two of them, and only its number says
where."""

_RELEASE = late(r"v?(\d{1,3})\.(\d{1,3})\.(\d{1,4})", re.ASCII)
_NUMBER = late(r"b?(\d{1,7})", re.ASCII)


def number(text: str) -> int | None:
    """Build that ``6900``, ``b6900``, ``v0.9.0`` or ``0.9.0`` names; None for an unknown release and other text."""
    if release := _RELEASE.fullmatch(text):
        return RELEASES.get((int(release[1]), int(release[2]), int(release[3])))
    found = _NUMBER.fullmatch(text)
    return int(found[1]) or None if found else None


def is_release(text: str) -> bool:
    """Whether a text is ``v1.0.0`` or ``1.0.0``, known or not."""
    return _RELEASE.fullmatch(text) is not None


def release(build: int) -> str | None:
    """Write the version of a build that is a release, ``v0.9.0``."""
    return next((f"v{'.'.join(map(str, version))}" for version, of in RELEASES.items() if of == build), None)


def oldest(first: int) -> int | None:
    """Oldest build that may have a wording first sampled at ``first``; None when there is no older sample."""
    at = SAMPLED.index(first) if first in SAMPLED else 0
    return SAMPLED[at - 1] + 1 if at else None


def newest(last: int) -> int | None:
    """Newest build that may have a wording last sampled at ``last``; None when it is current."""
    if last not in SAMPLED or last == NEWEST:
        return None
    return SAMPLED[SAMPLED.index(last) + 1] - 1


def describe(build: int | None, low: int | None, high: int | None) -> str:
    """Words for a build that is known exactly, within a range, or not at all."""
    if build is not None:
        version = release(build)
        return f"b{build}" if version is None else f"b{build} ({version})"
    if low is not None and high is not None:
        return f"b{low} to b{high}"
    if low is not None:
        return f"b{low} or newer"
    if high is not None:
        return f"b{high} or older"
    return "unknown build"


HYBRID = (
    "Qwen3Next", "Qwen3_5", "Qwen3_6", "KimiLinear", "Jamba", "Bamba", "FalconH1", "Zamba2", "NemotronH",
    "GraniteMoeHybrid", "Plamo2", "Plamo3", "Lfm2", "MiniMaxText01", "OlmoHybrid", "BailingMoeV2_5", "JetNemotron",
    "Nemotron_Nano", "Phi4Flash", "MiniMaxM1", "BailingMoeLinear",
)  # fmt: skip
"""Beginnings of architectures with layers that hold a state instead of keys and values (gated delta nets, Mamba, short
convolutions), in addition to attention."""
RECURRENT = ("Mamba", "FalconMamba", "RWKV")
"""Beginnings of architectures that have only such layers."""

SLIDING = (
    "Gemma2", "Gemma3", "Gemma4", "GptOss", "Cohere2", "Exaone4", "Olmo3", "MiMoV2", "DeepseekV4", "Step3p5",
)  # fmt: skip
"""Beginnings of architectures some of whose attention layers see only the last tokens."""


def is_sliding(architecture: str) -> bool:
    """Whether the model has layers with a sliding window beside others; False for an unknown name."""
    return architecture.startswith(SLIDING)


def is_hybrid(architecture: str) -> bool | None:
    """Whether the model keeps states besides keys and values; None for an unknown name."""
    return True if architecture.startswith((*HYBRID, *RECURRENT)) else None
