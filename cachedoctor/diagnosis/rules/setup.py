"""What follows from the facts of a server alone: worked out once, however many requests end under them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from cachedoctor.knowledge import builds, decision
from cachedoctor.model import Facts

PRINTS_CHECKS = 8352
"""From this build on every checkpoint that is looked at is printed (not yet in b8156)."""


class Setup:
    """Facts of a server, and what follows from them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @cached_property
    def rewinds_badly(self) -> bool | None:
        """Whether the memory needs checkpoints to go back (SWA, hybrid, recurrent); None when unknown."""
        f = self.facts
        if f.memory is not None:
            return f.memory != "attention" and not (f.memory == "swa" and f.setting("swa_full") is True)
        return True if "rewinding" in f.shows else None

    @cached_property
    def ram(self) -> Literal["on", "off"] | None:
        """The RAM prompt cache, on or off: by a start-up line, by updates that appear, or that never appear at a level
        that would show them."""
        f = self.facts
        if f.at_least(6629) is False:
            return "off"  # the cache came with PR #16391, between b6628 and b6751
        if f.setting("mmproj") is True and f.at_least(7965) is False:
            return "off"  # announced, but not used with mmproj up to b7964
        limit = f.setting("cache_ram_mib")
        if limit is not None:
            return "off" if limit == 0 else "on"
        if "ram_cache" in f.shows or f.setting("ram_evictions"):
            return "on"
        if "accounting" in f.shows and f.at_least(6751) and f.several:
            return "off"
        if f.starts_cold and f.at_least(8929) and f.setting("cache_idle_slots") is not False:
            return "on"  # a disabled cache makes these builds warn that --cache-idle-slots needs it
        return None

    @cached_property
    def ram_keeps_all(self) -> bool:
        """The RAM prompt cache is on, and nothing is known to have left it or to have been too large for it."""
        return self.ram == "on" and self.facts.ram_kept_all()

    # ---- for the replay of decisions

    @cached_property
    def builds(self) -> list[int]:
        """One build for each set of rules that may apply."""
        return decision.representatives(self.facts.build, self.facts.build_min, self.facts.build_max)

    @cached_property
    def prints_searches(self) -> bool:
        """A search for checkpoints is printed at the default level."""
        return self.facts.at_least(builds.LOGS_REDUCED_AGAIN) is False

    @cached_property
    def prints_checks(self) -> bool | None:
        """Every checkpoint that is looked at is printed, where the search is; None where the build leaves it open."""
        return self.facts.at_least(PRINTS_CHECKS)

    @cached_property
    def projector(self) -> bool:
        """A multimodal projector is loaded."""
        return self.facts.setting("mmproj") is True

    @cached_property
    def swa(self) -> int | None:
        """Sliding window as the start-up lines say it, tokens."""
        found: int | None = self.facts.setting("n_swa")
        return found

    @cached_property
    def window(self) -> int | None:
        """Sliding window as request lines say it, or else start-up lines, tokens."""
        return self.facts.window if self.facts.window is not None else self.swa
