"""What a log lets us know of the RAM prompt cache. Knows sessions and requests; knows no cause."""

from __future__ import annotations

from typing import Literal

from cachedoctor.model import Session
from cachedoctor.rules.base import Situation


def state(session: Session) -> Literal["on", "off"] | None:
    """On or off by a start-up line, by updates that appear, or that never appear at a level that would show them."""
    if session.at_least(6629) is False:
        return "off"  # the cache came with PR #16391, between b6628 and b6751
    if session.setting("mmproj") is True and session.at_least(7965) is False:
        return "off"  # announced, but not used with mmproj up to b7964
    limit = session.setting("cache_ram_mib")
    if limit is not None:
        return "off" if limit == 0 else "on"
    if session.seen & {"pc_update_begin", "pc_looking", "pc_state", "pc_saving", "pc_found", "ram_evictions"}:
        return "on"
    if session.seen & {"seq_rm", "new_prompt"} and session.at_least(6751) and session.n_requests > 1:
        return "off"
    if session.starts_cold and session.at_least(8929) and session.setting("cache_idle_slots") is not False:
        return "on"  # a disabled cache makes these builds warn that --cache-idle-slots needs it
    return None


def copy_refused(s: Situation) -> bool:
    """The thread's last state was saved to RAM, and the cache did not give it back: the new prompt does not match it."""
    if s.request.ram_refused:
        return True
    session, before = s.session, s.slot_before
    if state(session) != "on" or session.setting("ram_evictions") or s.request.restored_from_ram:
        return False
    if s.request.marks.keys() & {"ram_failed", "evicted"} or before is None:
        return False
    if session.seen & {"pc_looking", "pc_saving", "pc_update_begin"}:
        return before.ram_saved  # infill, embeddings and reranking take a slot without saving what it held
    # what a slot held is saved when it is taken by LRU or keeps less than half (server_slot selection, b6751 and newer)
    return before.selected_by == "lru" or (before.f_keep is not None and before.f_keep < 0.5)
