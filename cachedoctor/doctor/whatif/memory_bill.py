"""What slots, RAM cache and checkpoints held against what they saved, and the smallest limits that save as much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import (
    ENOUGH,
    MemoryUse,
    first,
    is_judged,
    reused_tokens,
    smallest_ram,
)
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.doctor.replaying.server_names import command_line
from cachedoctor.doctor.whatif.accounts import span_ms
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.model.whatif import MemoryBill, MemoryHeld, MemoryKind

_MIB = 1 << 20
_PAD = 256
"""Tokens to which llama-server rounds a context up."""
_CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class MeasuredMemory(NamedTuple):
    """A bill, and what it found."""

    bill: MemoryBill
    smaller: list[dict[str, int]]
    """The smallest value of each setting that is larger than needed, by its field; what frees most first."""


def memory_bill(evidence: ServerTraffic, served: Sequence[Served], use: MemoryUse) -> MeasuredMemory:
    """Say what was held under the recorded settings, and try smaller limits.

    Args:
        evidence: what is replayed.
        served: the replay under the recorded settings.
        use: what that held.
    """
    search = _Bill(evidence, served, use)
    rows = [search.slots()]
    if search.now.cache_ram_mib:
        rows.append(search.ram())
    if search.now.kind != "attention" and search.now.ctx_checkpoints:
        rows.append(search.checkpoints())
    freed = {row.what: (row.enough_mib or 0.0) - (row.limit_mib or 0.0) for row in rows}
    smaller = [search.changes[what] for what in sorted(search.changes, key=lambda what: freed[what])]
    sizes, use = evidence.sizes, search.use
    saving = use.most_bytes / _MIB if evidence.settings.token_bytes else None
    bill = MemoryBill(rows, saving, sizes.ram_most or None, sizes.saving_most or None, evidence.killed)
    return MeasuredMemory(bill, smaller)


class _Bill:
    """Fills the rows, and tries smaller limits."""

    def __init__(self, evidence: ServerTraffic, served: Sequence[Served], use: MemoryUse) -> None:
        self.evidence, self.base, self.now = evidence, evidence.settings, evidence.settings.resolved()
        self.served, self.use = served, use
        self.least = ENOUGH * reused_tokens(self.served)
        self.is_judged = is_judged(evidence.traffic, self.served)
        self.changes: dict[MemoryKind, dict[str, int]] = {}

    def slots(self) -> MemoryHeld:
        """What slots hold, and the smallest context."""
        row = self._row("slots", [not one.from_ram for one in self.served], self.now.slots or 1)
        token = 0.0 if self.now.memory == "recurrent" else self.base.token_bytes / _MIB
        if token:
            row.held_mib, row.limit_mib = self.use.slot_tokens * token, self.now.context * token
        wanted = self._smallest_context()
        if wanted is not None and wanted < self.now.context:
            self._smaller(row, {"context": wanted}, wanted * token if token else None)
        return row

    def _smallest_context(self) -> int | None:
        """Context of all slots, in tokens, that holds the longest prompt with its reply and reuses as much."""
        length = self.evidence.traffic.tree.length
        longest = max(max(length(one.prompt), length(one.content)) for one in self.evidence.traffic.asked)
        each = (longest + 1 + _PAD) // _PAD * _PAD
        if not self.now.kv_unified:
            return each * (self.now.slots or 1)
        spare = (self.now.context - each) // _PAD
        values = [each + spare * step // 16 * _PAD for step in range(16)] if spare > 0 else []
        values = [*sorted(set(values)), self.now.context]
        return first(values, lambda tokens: tokens == self.now.context or self._keeps({"context": tokens}))

    def ram(self) -> MemoryHeld:
        """What the RAM cache holds, and its smallest limit."""
        limit, use = self.now.cache_ram_mib or 0, self.use
        row = self._row("ram", [one.from_ram for one in self.served], use.ram_entries)
        row.made = use.saved
        if self.base.token_bytes:
            row.held_mib, row.limit_mib = use.ram_bytes / _MIB, float(limit) if limit > 0 else None
            wanted = smallest_ram(self.evidence.traffic, self.base, self.least, use) if self.is_judged else None
            if wanted is not None and (limit < 0 or wanted < limit):
                self._smaller(row, {"cache_ram_mib": wanted}, float(wanted))
        return row

    def checkpoints(self) -> MemoryHeld:
        """What checkpoints take, and how few do."""
        limit, slots = self.now.ctx_checkpoints or 0, self.now.slots or 1
        back = [one.decision is not None and one.decision.taken is not None for one in self.served]
        row = self._row("checkpoints", back, self.use.checkpoints)
        size = self.base.checkpoint_bytes / _MIB
        if size:
            row.held_mib, row.limit_mib = self.use.checkpoints * size, limit * slots * size
        values = [*(number for number in _CHECKPOINTS if number < limit), limit]
        wanted = first(values, self._keeps_checkpoints) if self.is_judged else None
        if wanted is not None and wanted < limit:
            self._smaller(row, {"ctx_checkpoints": wanted}, wanted * slots * size if size else None)
        return row

    def _keeps_checkpoints(self, number: int) -> bool:
        return number == self.now.ctx_checkpoints or self._keeps({"ctx_checkpoints": number})

    def _row(self, what: MemoryKind, which: Sequence[bool], entries: int) -> MemoryHeld:
        """Count what ``which`` requests reused, and the milliseconds that this would have taken."""
        found = [one.reused for one, counts in zip(self.served, which, strict=True) if counts and one.reused]
        speed = self.evidence.speed
        ms = round(sum(span_ms(speed, 0, tokens) for tokens in found), 3) if speed.count else None
        return MemoryHeld(what, len(found), sum(found), ms, entries)

    def _keeps(self, changes: dict[str, int]) -> bool:
        return reused_tokens(serve(self.evidence.traffic, replace(self.base, **changes))) >= self.least

    def _smaller(self, row: MemoryHeld, changes: dict[str, int], mib: float | None) -> None:
        self.changes[row.what] = changes
        row.options = command_line(self.base, replace(self.base, **changes))
        row.enough_mib = mib
