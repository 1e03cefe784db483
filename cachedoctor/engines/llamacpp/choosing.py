"""Lines from the choice of a slot to its launch: similarity, LRU, the RAM prompt cache, idle slots saved and cleared.

Knows these lines' meaning. Knows neither checkpoints nor timings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cachedoctor.engines.base import Event
from cachedoctor.engines.llamacpp import losses, requests
from cachedoctor.engines.llamacpp.slot_state import MAX_MIB, Choice, RamCache, SlotState
from cachedoctor.engines.llamacpp.threads import Moved, Threads
from cachedoctor.model import Mark, Request, Setting

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.tracker import Tracker

RAM_LINES = frozenset({"pc_looking", "pc_found"})
"""Lines that show whether the RAM cache was searched."""
_MAX_RAM = 256
"""Prompts of the RAM cache remembered by length."""


def hand_over(choice: Choice, request: Request, tracker: Tracker) -> None:
    """Give a request what its slot choice said."""
    request.first_line = min(request.first_line, choice.line)
    request.selected_by = choice.selected_by
    request.similarity, request.f_keep, request.t_last = choice.similarity, choice.f_keep, choice.t_last
    request.ram_looked, request.ram_saved = choice.looked, choice.saved is not None
    request.marks.update(choice.marks)
    if choice.t_last == -1:
        request.held_tokens, request.held_thread = 0, None
    tracker.slot(request.slot).candidates = choice.candidates
    if choice.candidates:
        request.ram_best_lcp = max(lcp for _, lcp in choice.candidates)
    if choice.n_prompt is not None:
        request.prompt_tokens = choice.n_prompt
    if choice.lcp is not None:
        request.common_prefix_tokens, request.lcp_exact = choice.lcp, True
    if tracker.watches_ram:
        request.restored_from_ram = choice.found_keep is not None
    if choice.found_keep is not None and choice.found_sim is not None:
        keep = choice.found_keep
        request.similarity, request.f_keep = choice.found_sim, keep
        exact = next(((n, lcp) for n, lcp in choice.candidates if n and abs(lcp / n - keep) < 0.0006), None)
        request.common_prefix_tokens, request.lcp_exact = (exact[1], True) if exact else (None, False)
        request.held_tokens, request.held_thread = exact[0] if exact else None, None


def settle_swap(request: Request, threads: Threads, ram: RamCache) -> list[Moved]:
    """A better prompt came from RAM and left it: find whose it was, now that the prompt's length is known.

    Returns the requests that were judged as turns of that conversation and belong to another.
    """
    keep, sim, prompt = request.f_keep, request.similarity, request.prompt_tokens
    if not keep or not sim or not prompt:
        return []
    if request.common_prefix_tokens is None:
        request.common_prefix_tokens = round(sim * prompt)
        request.derived.append("common_prefix_tokens")
    total = request.held_tokens or sim * prompt / keep
    slack = 1 if request.held_tokens else 2 + 0.001 * prompt / keep
    moved: list[Moved] = []
    thread = threads.by_total(total, slack, request.first_line)
    if thread is None:
        thread, moved = threads.split(total, slack, request.first_line)
    if thread is None:
        ram.saved.clear()  # one of them is gone, and which is unknown
    else:
        ram.saved.pop(thread.total, None)
        request.held_thread, request.held_tokens = thread.id, thread.total
        if keep >= 0.9995 and not request.lcp_exact:
            request.common_prefix_tokens = thread.total
    return moved


def look_back(request: Request, slot: SlotState, ram: RamCache, reference: int) -> None:
    """Note what the RAM cache made of the conversation's own previous prompt, whose length is ``reference``."""
    same = {lcp for length, lcp in slot.candidates if length == reference}
    if len(same) == 1:
        request.reference_lcp = same.pop()
    looked = request.ram_looked and request.restored_from_ram is False and "ram_failed" not in request.marks
    saved = ram.held(reference, request.first_line)
    request.ram_refused = looked and (request.reference_lcp is not None or saved is not None)
    if request.ram_refused and saved is not None:
        request.marks["ram_copy"] = saved


def _pending(tracker: Tracker) -> Choice | None:
    return tracker.chosen.choice if tracker.chosen is not None else None


def _checking(tracker: Tracker, event: Event, slot: SlotState) -> None:
    if slot.choice is not None and slot.choice.selected_by == "id":  # from b9873 on looked at after the choice
        slot.choice.lcp, slot.choice.n_prompt = event.fields["lcp_len"], event.fields["n_prompt"]
        return
    if slot.request is not None and slot.released:
        requests.finish(tracker, slot)
    tracker.looks = True
    slot.choice = Choice(event.line, lcp=event.fields["lcp_len"], n_prompt=event.fields["n_prompt"])


def choose(
    tracker: Tracker,
    slot: SlotState,
    line: int,
    text: bytes,
    similarity: float | None,
    f_keep: float | None,
    t_last: int | None,
) -> Choice:
    """Note the choice of a slot: by similarity when given, else by LRU when ``t_last`` is given."""
    if slot.request is not None and slot.released:
        requests.finish(tracker, slot)
    old = slot.choice
    drop_looks(tracker)
    choice = slot.choice = Choice(line)
    tracker.chosen, slot.evictions = slot, tracker.evictions
    if old is not None and old.selected_by is None:
        choice.lcp, choice.n_prompt, choice.line = old.lcp, old.n_prompt, old.line
    choice.marks["select"] = Mark(line, text)
    choice.similarity, choice.f_keep, choice.t_last = similarity, f_keep, t_last
    choice.selected_by = "lcp" if similarity is not None else "lru" if t_last is not None else None
    return choice


def drop_looks(tracker: Tracker) -> None:
    """Forget what was seen of slots that were looked at and not chosen."""
    if tracker.looks:
        tracker.looks = False
        for slot in tracker.slots.values():
            if slot.choice is not None and slot.choice.selected_by is None:
                slot.choice = None


def _selected(tracker: Tracker, event: Event, slot: SlotState) -> None:
    fields = event.fields
    choice = choose(
        tracker, slot, event.line, event.text, fields.get("f_sim_best"), fields.get("f_keep"), fields.get("t_last")
    )
    if event.message == "slot_select_lcs":
        # up to b6628 the share is of the slot's content, and the length is printed
        choice.selected_by, choice.f_keep = "lcp", fields["similarity"]
        choice.lcp = fields["lcs_len"] if "thold" in fields else None
    elif event.message == "slot_select_id":
        choice.selected_by = "id"


def _empty(tracker: Tracker, event: Event, slot: SlotState) -> None:
    if slot.request is None or slot.released:
        slot.length, slot.thread = 0, None


def _looking(tracker: Tracker, event: Event, slot: SlotState) -> None:
    choice = _pending(tracker)
    if choice is not None:
        choice.looked = True
        choice.marks["ram"] = Mark(event.line, event.text)
        if choice.f_keep is None and event.fields["f_keep"] >= 0:
            choice.f_keep, choice.similarity = (
                event.fields["f_keep"],
                event.fields["sim" if "sim" in event.fields else "f_sim"],
            )
        elif event.fields["f_keep"] < 0 and tracker.chosen is not None:
            tracker.chosen.length, tracker.chosen.thread = 0, None


def _found(tracker: Tracker, event: Event, slot: SlotState) -> None:
    choice = _pending(tracker)
    if choice is not None:
        choice.looked = True
        choice.found_keep = event.fields["f_keep"]
        choice.found_sim = event.fields["sim" if "sim" in event.fields else "f_sim"]
        choice.marks["ram"] = Mark(event.line, event.text)


def _candidate(tracker: Tracker, event: Event, slot: SlotState) -> None:
    choice = _pending(tracker)
    if choice is not None and len(choice.candidates) < _MAX_RAM:
        choice.candidates.append((event.fields["length"], event.fields["lcp"]))
        choice.marks.setdefault("ram_candidate", Mark(event.line, event.text))


def _saving(tracker: Tracker, event: Event, slot: SlotState) -> None:
    tracker.ram.save(event.fields["length"], Mark(event.line, event.text))
    choice = _pending(tracker)
    if choice is not None:
        choice.saved = event.fields["length"]
    state, owner = event.fields["size"], tracker.chosen if choice is not None else None  # else an idle slot is saved
    if owner is None:
        _size(tracker, state)
    else:  # an entry of the cache is this state and the slot's checkpoints
        _size(tracker, state + owner.checkpoints * (tracker.session.sizes.checkpoint or 0.0), owner.thread)


def _size(tracker: Tracker, mib: float | None, thread: int | None = None) -> None:
    """Keep what the largest saved prompt takes, in all and of each conversation."""
    if mib is None or not 0 < mib < MAX_MIB:
        return
    sizes = tracker.session.sizes
    sizes.entry = max(sizes.entry or 0.0, mib)
    if thread is not None and (thread in sizes.conversations or len(sizes.conversations) < _MAX_RAM):
        sizes.conversations[thread] = max(sizes.conversations.get(thread, 0.0), mib)


def _evicted(tracker: Tracker, event: Event, slot: SlotState) -> None:
    choice = _pending(tracker)
    _size(tracker, event.fields.get("size", event.fields.get("state_size")))
    holder = choice.marks if choice is not None else slot.request.marks if slot.request else None
    losses.evicted(tracker, event)
    tracker.before_change()
    tracker.session.settings.setdefault("ram_evictions", Setting(0, event.line)).value += 1
    tracker.ram.saved.clear()
    if holder is not None:
        holder["evicted"] = Mark(event.line, event.text)


def _cleared(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """A slot was emptied: after its save to RAM, or because memory ran out."""
    if event.message == "slot_purge":
        slot = tracker.slot(event.fields["id_slot"])
        tracker.before_change()
        tracker.session.settings.setdefault("kv_purged", Setting(True, event.line, event.text))
        if slot.request is not None and slot.released:
            requests.finish(tracker, slot)
    if slot.request is None or slot.released:
        if event.message == "slot_clear":
            losses.cleared(tracker, event, slot)
        slot.length, slot.thread = 0, None


def _file(tracker: Tracker, event: Event, slot: SlotState) -> None:
    slot.length, slot.thread, slot.positions_known, slot.dropped, slot.spans = None, None, False, [], []


def _pc_failed(tracker: Tracker, event: Event, slot: SlotState) -> None:
    choice = _pending(tracker)
    if choice is not None:
        choice.marks["ram_failed"] = Mark(event.line, event.text)


HANDLERS: dict[str, Callable[[Tracker, Event, SlotState], None]] = {
    "slot_check_sim": _checking,
    "slot_select_lcp": _selected,
    "slot_select_lcs": _selected,
    "slot_select_lru": _selected,
    "slot_select_id": _selected,
    "slot_skip_empty": _empty,
    "pc_looking": _looking,
    "pc_found": _found,
    "pc_candidate": _candidate,
    "pc_saving": _saving,
    "pc_evict_size": _evicted,
    "pc_evict_tokens": _evicted,
    "pc_make_room": _evicted,
    "pc_oversize": _evicted,
    "pc_restore_fail": _pc_failed,
    "pc_load_fail": _pc_failed,
    "slot_clear": _cleared,
    "slot_purge": _cleared,
    "slotfile_restored": _file,
}
