"""The settings of a llama-server that decide its reuse, and each build's defaults for them."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.decision import N_UBATCH

Memory = Literal["attention", "swa", "hybrid", "recurrent"]

_MIB = 1 << 20


class ServerSettings(msgspec.Struct, frozen=True):
    """The settings of one server. None means the default of the build; ``resolved`` fills it in."""

    build: int = NEWEST
    memory: Memory = "attention"
    window: int = 0
    """Size of the sliding window in tokens."""
    slots: int | None = None
    """``-np``; None is what the build chooses."""
    context: int = 16384
    """``-c`` in tokens: of all slots together."""
    kv_unified: bool | None = None
    cache_ram_mib: int | None = None
    """``--cache-ram``; 0 is off, -1 without limit."""
    ctx_checkpoints: int | None = None
    checkpoint_min_step: int | None = None
    """``--checkpoint-min-step``, and before b9538 ``--checkpoint-every-n-tokens``."""
    slot_prompt_similarity: float | None = None
    """``-sps``; 0 is off."""
    swa_full: bool = False
    cache_reuse: int = 0
    """``--cache-reuse``: minimum length of a chunk that is shifted, in tokens; 0 is off."""
    cache_idle_slots: bool | None = None
    batch: int = 2048
    ubatch: int = N_UBATCH
    projector: bool = False
    """``--mmproj``."""
    token_bytes: float = 0.0
    """Bytes that one token takes in the RAM cache; 0 if unknown: then no entry is ever too big."""
    state_bytes: float = 0.0
    """Bytes of a saved state whatever its length: recurrent state, window."""
    checkpoint_bytes: float = 0.0
    """Bytes of one context checkpoint."""

    def resolved(self) -> ServerSettings:
        """Replace None by the defaults of the build, and remove settings that the build does not have."""
        build = self.build
        slots, unified = self.slots, bool(self.kv_unified)
        if slots is None or slots < 1:
            auto = build >= 7079
            slots, unified = (4 if auto else 1), (auto if self.kv_unified is None else unified)
        elif slots == 1 and 7079 <= build < 7551 and not unified:
            slots, unified = 4, True
        ram = 0 if build < 6751 else 8192 if self.cache_ram_mib is None else self.cache_ram_mib
        limit = 3 if build < 6751 else 8 if build < 8352 else 32
        idle = self.cache_idle_slots is not False and ram != 0 and (build >= 9713 or (build >= 8672 and unified))
        return msgspec.structs.replace(
            self,
            slots=slots,
            kv_unified=unified,
            cache_ram_mib=ram,
            ctx_checkpoints=limit if self.ctx_checkpoints is None else self.ctx_checkpoints,
            checkpoint_min_step=_step(build) if self.checkpoint_min_step is None else self.checkpoint_min_step,
            slot_prompt_similarity=_similarity(build, self.slot_prompt_similarity),
            cache_idle_slots=idle,
        )

    @property
    def kind(self) -> Memory:
        """The kind of memory for decisions: a sliding window of full size can go back like attention."""
        return "attention" if self.memory == "swa" and self.swa_full else self.memory

    @property
    def ram_bytes(self) -> float:
        """Limit of the RAM cache in bytes."""
        ram = self.cache_ram_mib or 0
        return float("inf") if ram < 0 else float(ram * _MIB)


def _step(build: int) -> int:
    """Least distance of checkpoints in tokens that no flag changed."""
    return 8192 if build < 9538 or build >= 9873 else 256


def _similarity(build: int, given: float | None) -> float:
    if given is not None:
        return given
    return 0.5 if build < 6500 else 0.1
