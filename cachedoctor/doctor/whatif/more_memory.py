"""What memory other settings may take more, as far as the log prints sizes."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings

_MIB = 1 << 20


class MemoryCost(NamedTuple):
    """Memory that one server may take more than another."""

    mib: float | None
    """Maximum additional MiB; below 0 if it takes less; None if a size is not known."""
    why: str


def more_memory(old: ServerSettings, new: ServerSettings) -> MemoryCost:
    """Say what ``new`` may take more than ``old``: context, limit of the RAM cache, checkpoints, recurrent states."""
    old, new = old.resolved(), new.resolved()
    parts = [part for part in (_context(old, new), _ram(old, new), _saved(old, new), _window(old, new)) if part]
    unknown = [part.why for part in parts if part.mib is None]
    if unknown:
        return MemoryCost(None, "; ".join(unknown))
    return MemoryCost(sum(part.mib or 0.0 for part in parts), ", ".join(part.why for part in parts))


def _context(old: ServerSettings, new: ServerSettings) -> MemoryCost | None:
    tokens = new.context - old.context
    if not tokens or new.memory == "recurrent":
        return None
    if not old.token_bytes:
        return MemoryCost(None, "the log does not show the memory per token of context")
    return MemoryCost(tokens * old.token_bytes / _MIB, "context")


def _ram(old: ServerSettings, new: ServerSettings) -> MemoryCost | None:
    before, after = old.cache_ram_mib or 0, new.cache_ram_mib or 0
    if before == after:
        return None
    if before < 0 or after < 0:
        return MemoryCost(None, "a RAM cache without limit")
    sized = "" if new.token_bytes else "; the log does not show the size of a saved prompt"
    return MemoryCost(float(after - before), f"limit of the RAM cache{sized}")


def _saved(old: ServerSettings, new: ServerSettings) -> MemoryCost | None:
    """Checkpoints and recurrent states of the slots."""
    if new.kind == "attention":
        return None
    places = [(one.slots or 1) * (one.ctx_checkpoints or 0) for one in (old, new)]
    if places[0] == places[1] and old.slots == new.slots:
        return None
    if not old.checkpoint_bytes:
        return MemoryCost(None, "the log does not show the size of a checkpoint")
    states = ((new.slots or 1) - (old.slots or 1)) * old.state_bytes
    return MemoryCost(((places[1] - places[0]) * old.checkpoint_bytes + states) / _MIB, "checkpoints")


def _window(old: ServerSettings, new: ServerSettings) -> MemoryCost | None:
    if old.swa_full == new.swa_full:
        return None
    return MemoryCost(None, "the log does not show the size of a full window")
