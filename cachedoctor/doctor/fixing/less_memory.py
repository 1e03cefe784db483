"""After a kill for want of memory: the smallest RAM cache that keeps what was reused, by replay."""

from __future__ import annotations

from cachedoctor.diagnosis.replay.llamacpp.memory_use import ENOUGH, is_judged, measured, reused_tokens, smallest_ram
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.diagnosis.rules import advice
from cachedoctor.knowledge import server_options
from cachedoctor.model import OptionChange, Remedy, Session

KILLED = "CD409"
"""The finding that memory ran out."""
_MIB = 1 << 20


def less_memory(traffic: Traffic, settings: ServerSettings, session: Session) -> list[Remedy]:
    """The smallest limit of the RAM cache that keeps what was reused; empty where it frees nothing of what was held."""
    served, use = measured(traffic, settings)
    if not is_judged(traffic, served):
        return []
    reused = reused_tokens(served)
    wanted = smallest_ram(traffic, settings, ENOUGH * reused, use)
    if wanted is None or wanted * _MIB >= use.saving_bytes:
        return []
    words = (
        f"The smallest limit that keeps 99 % of the {reused:,} tokens reused here, by replay of this log; saving a "
        "prompt needs memory for a copy beside it."
    )
    name = server_options.name_for(server_options.CACHE_RAM, *advice.span(session)) or "--cache-ram"
    return [Remedy(words, options=[OptionChange(name, str(wanted))])]
