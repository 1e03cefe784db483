"""Trials: the traffic that is recorded, and the setting of which the smallest value is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from e2e import wheels


@dataclass(frozen=True)
class Trial:
    """Conversations that alternate on one server."""

    asks: Literal["memory", "agents"]
    kind: str
    lengths: tuple[int, ...]
    """Tokens of the system prompt of each conversation."""
    turns: int = 3
    slots: int = 1
    ram: int = 8192
    """MiB of the RAM cache under which the day is recorded."""
    build: int = wheels.NEWEST

    @property
    def name(self) -> str:
        """What is asked, memory, conversations, build."""
        return f"{self.asks}-{self.kind}-{len(self.lengths)}x{max(self.lengths)}-np{self.slots}-b{self.build}"

    @property
    def context(self) -> int:
        """Of each slot: room for the longest conversation."""
        return -(-(max(self.lengths) + 600 * self.turns) // 1024) * 1024

    def options(self, slots: int | None = None, ram: int | None = None, more: tuple[str, ...] = ()) -> list[str]:
        """Command line of a server with this setting."""
        number = self.slots if slots is None else slots
        limit = self.ram if ram is None else ram
        found = ["-np", str(number), "-c", str(self.context * number), "--no-kv-unified", "-lv", "4"]
        return [*found, "--cache-ram", str(limit), *more]


OLD = 8672
MEMORY = (
    Trial("memory", "dense", (9000, 8000, 7000)),
    Trial("memory", "dense", (12000, 4000, 9000, 6000), slots=2),
    Trial("memory", "dense", (6000, 6500, 7000, 7500, 8000)),
    Trial("memory", "dense", (9000, 8000, 7000), build=OLD),
    Trial("memory", "dense", (12000, 4000, 9000, 6000), slots=2, build=OLD),
    Trial("memory", "hybrid", (9000, 8000, 7000)),
    Trial("memory", "hybrid", (8000, 5000, 6000, 7000)),
    Trial("memory", "hybrid", (9000, 8000, 7000), build=OLD),
    Trial("memory", "swa", (7000, 6000, 5000)),
    Trial("memory", "swa", (5000, 5500, 6000, 6500), slots=2),
    Trial("memory", "swa", (7000, 6000, 5000), build=OLD),
    Trial("memory", "swa", (5000, 5500, 6000, 6500), slots=2, build=OLD),
)
AGENTS = (
    Trial("agents", "dense", (5000, 5200), slots=1, ram=0),
    Trial("agents", "dense", (5000, 5200, 5400), slots=2, ram=0),
    Trial("agents", "dense", (4000, 4200, 4400, 4600), slots=1, ram=2),
    Trial("agents", "dense", (4000, 4100, 4200, 4300, 4400), slots=3, ram=0, build=OLD),
    Trial("agents", "hybrid", (4000, 4200, 4400, 4600), slots=2, ram=0),
    Trial("agents", "hybrid", (3000, 3100, 3200, 3300, 3400, 3500), slots=2, ram=0, build=OLD),
    Trial("agents", "swa", (4000, 4200, 4400), slots=1, ram=0),
    Trial("agents", "dense", (3000, 3100, 3200, 3300, 3400, 3500, 3600, 3700), slots=2, ram=0),
)
ALL = (*MEMORY, *AGENTS)
