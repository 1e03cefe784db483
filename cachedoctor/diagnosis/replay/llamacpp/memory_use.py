"""The memory use of a replayed llama-server, and the smallest limits under which it reuses as much."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import ReplayedServer, serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic

_MIB = 1 << 20
_FINE = 16
"""Limits are tried in whole MiB up to this, then in steps of a sixteenth of the next lower power of two (at most 6
%)."""
ENOUGH = 0.99
"""Share of the reused tokens that a smaller limit has to keep."""
_LEAST_REUSED = 0.5
"""Share of the prompt tokens: if less than this is reused, a limit that achieves it is not worth advising."""


class MemoryUse(msgspec.Struct, gc=False):
    """Maximum memory use of the replay, in bytes as far as the log prints sizes. A whole process uses more."""

    ram_bytes: float = 0.0
    """Peak bytes of the RAM cache after a request has got its slot, within the limit."""
    ram_entries: int = 0
    """Number of entries then."""
    saving_bytes: float = 0.0
    """Peak bytes including an entry being saved: up to b9873, entries over the limit are evicted only after that."""
    saved: int = 0
    """Number of entries that were ever made."""
    slot_tokens: int = 0
    """Peak number of tokens in all slots."""
    checkpoints: int = 0
    """Peak number of context checkpoints in all slots."""
    most_bytes: float = 0.0
    """Peak bytes of the RAM cache while saving, with the checkpoints that the slots held then."""


class MeasuredReplay(ReplayedServer):
    """A replayed server that is measured when a request gets its slot and when it leaves the slot."""

    def __init__(self, traffic: Traffic, settings: ServerSettings) -> None:
        super().__init__(traffic, settings)
        self.use = MemoryUse()

    def run(self) -> list[Served]:
        """Replay the traffic."""
        ram = self.ram
        served = super().run()
        if ram is not None:
            self.use.saved = ram.made
        return served

    def _start(self, index: int) -> bool:
        use, ram, held = self.use, self.ram, 0.0
        if ram is not None:
            ram.most = ram.bytes
            if self.settings.checkpoint_bytes:
                held = sum(len(slot.content.saved) for slot in self.slots) * self.settings.checkpoint_bytes
        started = super()._start(index)
        if ram is not None:
            use.saving_bytes = max(use.saving_bytes, ram.most)
            use.most_bytes = max(use.most_bytes, ram.most + held)
            if (ram.bytes, len(ram.entries)) > (use.ram_bytes, use.ram_entries):
                use.ram_bytes, use.ram_entries = ram.bytes, len(ram.entries)
        self._measure_slots()
        return started

    def _release(self, index: int) -> None:
        super()._release(index)
        self._measure_slots()

    def _measure_slots(self) -> None:
        use, tokens, checkpoints = self.use, 0, 0
        for slot in self.slots:
            tokens += slot.content.tokens
            checkpoints += len(slot.content.saved)
        if tokens > use.slot_tokens:
            use.slot_tokens = tokens
        if checkpoints > use.checkpoints:
            use.checkpoints = checkpoints
            use.most_bytes = max(use.most_bytes, checkpoints * self.settings.checkpoint_bytes)


def measured(traffic: Traffic, settings: ServerSettings) -> tuple[list[Served], MemoryUse]:
    """Return the result of ``serve``, and the memory use."""
    server = MeasuredReplay(traffic, settings.resolved())
    return server.run(), server.use


def reused_tokens(served: Sequence[Served]) -> int:
    """Add up the reused tokens."""
    return sum(one.reused for one in served)


def is_judged(traffic: Traffic, served: Sequence[Served]) -> bool:
    """Whether enough is reused to recommend a limit that keeps the reuse."""
    return reused_tokens(served) >= _LEAST_REUSED * sum(traffic.tree.length(one.prompt) for one in traffic.asked)


def smallest_ram(traffic: Traffic, settings: ServerSettings, least: float, use: MemoryUse) -> int | None:
    """Return the smallest ``--cache-ram`` in MiB with which at least ``least`` tokens are reused; 0 if none is needed.

    None if sizes are unknown, or if no limit below the used memory reuses as much. ``use`` is of the replay under
    ``settings``. The next smaller limit that is tried does not reuse as much.
    """
    if not settings.token_bytes or not settings.resolved().cache_ram_mib:
        return None
    limits = steps(-(-int(use.saving_bytes) // _MIB))

    def keeps(mib: int) -> bool:
        return reused_tokens(serve(traffic, replace(settings, cache_ram_mib=mib))) >= least

    return first(limits, keeps)


def steps(most: int) -> list[int]:
    """Values from 0 to ``most``, in steps that grow with them."""
    found, value, step = [0], 1, 1
    while value < most:
        found.append(value)
        if value >= 2 * _FINE * step:
            step *= 2
        value += step
    return [*found, most] if most > 0 else found


def first(values: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """Return the first of growing values for which something holds; None if it does not hold for the last.

    It is assumed to hold for all larger values; only this value and the one before it are checked.
    """
    if not holds(values[-1]):
        return None
    low, high = -1, len(values) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if holds(values[middle]):
            high = middle
        else:
            low = middle
    return values[high]
