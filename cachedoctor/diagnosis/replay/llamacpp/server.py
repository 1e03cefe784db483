"""Replays a llama-server: the slot that processes a request, the slot's content then, and how much is reused.

Source: the slot logic of llama.cpp between b5300 and b11549; for going back, as in ``knowledge/decision.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp import window
from cachedoctor.diagnosis.replay.llamacpp.content import (
    EMPTY,
    Cause,
    ChosenBy,
    ReplayContent,
    Served,
    contents,
    moved,
)
from cachedoctor.diagnosis.replay.llamacpp.context_checkpoints import Checkpoint, added, batch_end, due
from cachedoctor.diagnosis.replay.llamacpp.ram_entries import RamEntries, RamPeak
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.llamacpp.window import FRESH, Cells
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.knowledge.decision import Decision, HeldState, decide

NEVER = Served(0, -1, "none", False, 0, 0)


def serve(traffic: Traffic, settings: ServerSettings) -> list[Served]:
    """Replay every request of the traffic, in order, on a server with these settings.

    Requests that find no idle slot wait until one is released. A request that had ended by then, in the order of the
    traffic, ends at once.
    """
    return ReplayedServer(traffic, settings.resolved()).run()


class _Slot:
    """One slot."""

    __slots__ = ("content", "number", "request", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.content = EMPTY
        self.used = -1
        self.request: int | None = None


class ReplayedServer:
    """The state of one server during a replay; ``settings`` are resolved."""

    def __init__(self, traffic: Traffic, settings: ServerSettings) -> None:
        self.traffic, self.settings, self.tree = traffic, settings, traffic.tree
        self.lengths, self.places, self.nearest = traffic.lengths, traffic.places, traffic.nearest
        self.contents, self.ideal, self.shared = contents(traffic), traffic.ideal, traffic.tree.shared
        self.slots = [_Slot(number) for number in range(settings.slots or 1)]
        self.ram = RamEntries(settings, self.tree, self._lose) if settings.cache_ram_mib else None
        self.lost: dict[int, Cause] = {}
        self.waiting: list[int] = []
        self.ended: set[int] = set()
        self.files: dict[str, ReplayContent] = {}
        self.clock = 0
        self.room = window.room(settings)
        self.attention, self.sliding = settings.kind == "attention", settings.kind == "swa"
        # b8672 to b9293 held memory with a window of full size against the window as well.
        misfires = settings.memory == "swa" and 8672 <= settings.build < 9294
        self.window = settings.window if self.sliding or misfires else 0
        self.plain = self.attention and not self.window
        """Reuse depends only on the common prefix."""
        self.least = settings.slot_prompt_similarity or 0.0
        self.below, self.above = 0.0, float("inf")
        """Shares of prompts that slots held: the largest that was too small, the smallest that was sufficient."""
        self.ram_peak = RamPeak(0.0, 0)
        """Peak of the RAM cache, set at the end of the traffic."""
        self.served = [NEVER] * len(traffic.asked)
        self.of: dict[int, tuple[_Slot, Sequence[_Slot]]] = {}
        """Slot of each running request, and the slots of its other choices (``n``)."""
        self.complete = all(event.content is None for event in traffic.happened)
        """The traffic has everything that is restored."""

    def run(self) -> list[Served]:
        """Replay the traffic."""
        for _, kind, index in self.traffic.moments:
            self.clock += 1
            if kind == 0:
                self._end(index)
            elif kind == 1:
                self._happen(index)
            elif not self._start(index):
                self.waiting.append(index)
        if self.ram is not None:
            self.ram_peak = self.ram.peak
            self.ram = None  # it knows this server: without it, both end at once when many settings are replayed
        return self.served

    # ---- moments

    def _serve_waiting(self) -> None:
        """Let those begin that now can; who waits for a slot of its own keeps nobody else waiting."""
        started: int | None = -1
        while started is not None and any(slot.request is None for slot in self.slots):
            started = next((index for index in self.waiting if self._start(index)), None)
            if started is not None:
                self.waiting.remove(started)
                if started in self.ended:
                    self._release(started)

    def _end(self, index: int) -> None:
        if index not in self.of:
            self.ended.add(index)
            return
        self._release(index)
        if self.waiting:
            self._serve_waiting()

    def _release(self, index: int) -> None:
        asked = self.traffic.asked[index]
        first, others = self.of.pop(index)
        for slot in others:
            slot.content, slot.request, slot.used = self._cleared(slot.content), None, self.clock
        first.request, first.used = None, self.clock
        if asked.refused:
            return
        content, old = self.contents[index][1], first.content
        if self.sliding:
            tokens = content.tokens
            cells = window.cut(old.cells, tokens)
            cells = window.replied(cells, min(old.tokens, tokens), tokens, self.settings, self.room)
            content = replace(content, cells=cells, saved=old.saved)
        elif old.saved:
            content = replace(content, saved=old.saved)
        first.content = content

    def _happen(self, index: int) -> None:
        event = self.traffic.happened[index]
        if event.what == "restart":
            self._restart()
            return
        slot, build = self.slots[event.slot % len(self.slots)], self.settings.build
        if event.what == "save":
            kept = slot.content.saved if build >= 11549 else ()
            self.files[event.file] = replace(slot.content, saved=kept)
        elif event.what == "erase":
            self._lose(slot.content, "erased")
            slot.content = self._cleared(slot.content)
        elif event.file in self.files or event.content is not None:
            self._lose(slot.content, "erased")
            found = self.files[event.file] if event.content is None else self._of_file(event.content, event.checkpoints)
            cells = self._brought(slot.content, found)
            kept = found.saved if build >= 11549 else () if build >= 10068 else slot.content.saved
            slot.content = replace(found, cells=cells, saved=kept)

    def _of_file(self, text: int, checkpoints: tuple[int, ...]) -> ReplayContent:
        """What a file holds that was saved before the traffic begins, or of which nobody knows when."""
        kept = tuple(Checkpoint(tokens - 1, tokens - 1, tokens, -1) for tokens in checkpoints)
        return ReplayContent(text, self.tree.length(text), FRESH, kept, -1, self.tree.places[text])

    def _restart(self) -> None:
        for slot in self.slots:
            self._lose(slot.content, "restart")
            slot.content, slot.used = EMPTY, -1
        if self.ram is not None:
            self.ram.clear("restart")

    # ---- one request

    def _start(self, index: int) -> bool:
        asked = self.traffic.asked[index]
        found = self._choose(index, asked)
        if found is None:
            return False
        slot, by, shared = found
        from_ram = self.ram is not None and self._swap(self.ram, index, slot, by, shared, asked)
        slot.request = index
        children = self._children(asked, slot) if asked.choices > 1 else ()
        self.of[index] = slot, children
        if self.ram is not None and self.settings.cache_idle_slots and asked.completion:
            self._save_idle(self.ram)
        if self.settings.kv_unified and self.settings.build >= 7079:
            self._make_room(max(self.lengths[index], self.contents[index][1].tokens), slot)
        if from_ram:
            shared = self._shared(slot.content, index)
        self.served[index] = self._compute(index, asked, slot, by, from_ram, shared)
        for child in children:
            child.content = slot.content
        return True

    def _choose(self, index: int, asked: TimedRequest) -> tuple[_Slot, ChosenBy, int] | None:
        """Slot, how it was chosen, and the common prefix with it as far as the choice looked at it; None: all busy."""
        slots = self.slots
        pinned, build = asked.id_slot, self.settings.build
        if pinned is not None and pinned >= 0 and (build >= 9713 or pinned < len(slots)):
            slot = slots[pinned % len(slots)]
            return None if slot.request is not None else (slot, "id", self._shared(slot.content, index))
        if self.least:
            found = self._most_similar(index)
            if found is not None:
                return found
        chosen, later = None, build >= 5833
        for slot in slots:
            if slot.request is None and (chosen is None or slot.used < chosen.used + later):
                chosen = slot
        return None if chosen is None else (chosen, "lru", self._shared(chosen.content, index))

    def _most_similar(self, index: int) -> tuple[_Slot, ChosenBy, int] | None:
        """The idle slot that a prompt shares enough with, and how much: of the prompt, up to b6628 of the slot.

        No slot has more of it than was ever sent before it came; those after the first that has so much need no look.
        """
        place, length, least = self.places[index], self.lengths[index], self.least
        most, old = length if self.waiting else self.ideal[index].tokens, self.settings.build < 6751
        chosen, best = None, 0 if old else least * length
        if most <= best and self.complete:
            self.below = max(self.below, most / length)
            return None
        shares, top = self.shared, 0
        if most > best and not old and not self.waiting:
            low, high = self.nearest[index]
            for slot in self.slots:
                if low <= slot.content.place <= high and slot.request is None:
                    shared = shares(slot.content.place, place)
                    if shared < self.above * length:
                        self.above = shared / length
                    return slot, "similarity", shared
        for slot in self.slots:
            content = slot.content
            if slot.request is not None:
                continue
            shared = content.tokens if content.tokens <= best else shares(content.place, place)
            if shared > top:
                top = shared
            if shared > best and (not old or shared > least * content.tokens):
                chosen, best = slot, shared
                if shared >= most:
                    break
        if chosen is None:
            self.below = max(self.below, top / length)
            return None
        self.above = min(self.above, best / length)
        return chosen, "similarity", int(best)

    def _shared(self, content: ReplayContent, index: int) -> int:
        """How much of what a slot holds a prompt begins with."""
        return self.shared(content.place, self.places[index]) if content.tokens else 0

    def _swap(self, ram: RamEntries, index: int, slot: _Slot, by: ChosenBy, shared: int, asked: TimedRequest) -> bool:
        """Save what the slot holds to the RAM cache and look for something better; whether there was."""
        build, old = self.settings.build, slot.content
        if not asked.completion or (by == "id" and (build < 9873 or not old.tokens)):
            return False
        if (build < 8672 and not old.tokens) or (self.settings.projector and build < 8156):
            return False
        keep = shared / old.tokens if old.tokens else 0.0
        if by == "id":
            share = shared / self.lengths[index]
            if share <= self.least:
                keep, self.below = 0.0, max(self.below, share)
            else:
                self.above = min(self.above, share)
        if by != "lru" and keep >= 0.5:
            return False
        ram.save(old)
        found = ram.load(self.places[index], old, shared)
        if found is not None:
            self._replaced(old)
            slot.content = replace(found, cells=self._brought(old, found)) if self.sliding else found
        ram.trim()
        return found is not None

    def _brought(self, old: ReplayContent, found: ReplayContent) -> Cells:
        """The cells of a slot when the saved state of another content took the place of its own."""
        if not self.sliding:
            return FRESH
        return window.restored(old.cells, window.saved(found.cells, found.tokens, self.settings), self.room)

    def _children(self, asked: TimedRequest, parent: _Slot) -> list[_Slot]:
        """Idle slots that take the other choices of a request."""
        found = [slot for slot in self.slots if slot.request is None and slot is not parent][: asked.choices - 1]
        for slot in found:
            self._replaced(slot.content)
            slot.request = parent.request
        return found

    def _save_idle(self, ram: RamEntries) -> None:
        """Save the other idle slots, and clear them where they share one memory."""
        known, unified = ram.known, self.settings.kv_unified
        for slot in self.slots:
            content = slot.content
            if slot.request is None and content.tokens:
                kept = content.text in known
                if not kept and (kept := ram.save(content)):
                    ram.trim()
                if unified:
                    if not kept:
                        self._lose(content, "refused")
                    slot.content = self._cleared(content)

    def _make_room(self, length: int, taken: _Slot) -> None:
        """Purge idle slots while the memory that all slots share is too small."""
        used = length + sum(slot.content.tokens for slot in self.slots if slot is not taken)
        for slot in self.slots:
            if used > self.settings.context and slot.request is None and slot.content.tokens:
                used -= slot.content.tokens
                self._lose(slot.content, "purged")
                slot.content = self._cleared(slot.content)

    def _compute(
        self, index: int, asked: TimedRequest, slot: _Slot, by: ChosenBy, from_ram: bool, shared: int
    ) -> Served:
        length, old = self.lengths[index], slot.content
        best = self.ideal[index].tokens
        if best >= length:
            best = length - 1
        if asked.refused:
            return Served(0, slot.number, by, from_ram, 0, best)
        if shared > best:  # a request that had to wait may find more than when it came
            best = shared if shared < length else length - 1
        decision, reused = None, 0
        if asked.cache_prompt and asked.completion:
            if (
                self.plain
                and shared != 1
                and shared < length
                and (shared == old.tokens or not self.settings.cache_reuse)
            ):
                reused = shared
            else:
                decision = self._decide(asked, old, shared, length)
                reused = decision.reused
        cause = self._cause(index, slot, by, shared, best) if reused < best else ""
        if shared < old.tokens:
            self._replaced(old, "consumed" if from_ram else None)
        if self.attention:
            slot.content = self.contents[index][0]
        else:
            slot.content = self._computed(index, asked, old, decision, reused, length)
        return Served(reused, slot.number, by, from_ram, shared, best, cause, decision)

    def _decide(self, asked: TimedRequest, old: ReplayContent, shared: int, length: int) -> Decision:
        settings = self.settings
        if settings.cache_reuse and self.attention and not settings.projector and shared < old.tokens:
            shared = self._moved(asked, old, shared)
        saved = [(one.first, one.last) for one in reversed(old.saved)]
        held = HeldState(settings.kind, old.tokens, self._oldest(old.cells, old.tokens), saved, self.window)
        return decide(settings.build, held, shared, length, settings.projector)

    def _oldest(self, cells: Cells, tokens: int) -> int:
        """Smallest position of the memory: of a recurrent state its only one."""
        if self.sliding:
            return window.oldest(cells, tokens)
        return 0 if self.attention else tokens - 1

    def _moved(self, asked: TimedRequest, old: ReplayContent, shared: int) -> int:
        """The common prefix with the pieces that are moved after it; nothing is known to be in invented tokens."""
        held, sent = self.tree.known(old.text), self.tree.known(asked.prompt)
        return moved(held[: old.tokens], sent, shared, self.settings.cache_reuse)

    def _computed(
        self, index: int, asked: TimedRequest, old: ReplayContent, decision: Decision | None, reused: int, length: int
    ) -> ReplayContent:
        """What the slot holds when the prompt is computed."""
        settings = self.settings
        cells = self._gone_back(old, decision, reused)
        saved = [one for one in old.saved if self._stays(one, decision, reused)]
        at, makes = reused, settings.ctx_checkpoints and asked.completion
        while at < length:
            end = batch_end(at, length, asked.user_starts, settings, saved)
            if makes and settings.build >= 6751 and due(at, length, asked.user_starts, settings, saved):
                saved = added(saved, self._checkpoint(cells, at, index), settings)
            if self.sliding:
                cells = window.written(cells, at, end, settings, self.room, settings.ubatch)
            at = end
        if makes and 6180 <= settings.build < 6751 and self.sliding:
            saved = added(saved, self._checkpoint(cells, length, index), settings)
        return replace(self.contents[index][0], cells=cells, saved=tuple(saved))

    def _checkpoint(self, cells: Cells, tokens: int, index: int) -> Checkpoint:
        runs = window.saved(cells, tokens, self.settings) if self.sliding else ()
        return Checkpoint(self._oldest(cells, tokens), tokens - 1, tokens, index, runs)

    def _gone_back(self, old: ReplayContent, decision: Decision | None, reused: int) -> Cells:
        """The cells when the slot has gone back to what is reused."""
        cells = old.cells
        if self.sliding and decision is not None and decision.taken is not None:
            taken = next(one for one in reversed(old.saved) if (one.first, one.last) == decision.taken)
            cells = window.restored(cells, taken.runs, self.room)
        return window.cut(cells, reused) if self.sliding else cells

    def _stays(self, one: Checkpoint, decision: Decision | None, reused: int) -> bool:
        """Whether a checkpoint is still of use after the place that the server goes back to."""
        if self.settings.build < 8672:
            return one.first <= (0 if decision is None else decision.threshold)
        return one.last <= reused

    # ---- what becomes of what was held

    def _cleared(self, content: ReplayContent) -> ReplayContent:
        """An empty slot; up to b9873 its checkpoints stayed."""
        cells = window.cut(content.cells, 0) if self.sliding else FRESH
        return replace(EMPTY, cells=cells, saved=content.saved if self.settings.build < 10068 else ())

    def _lose(self, content: ReplayContent, why: Cause) -> None:
        if content.tokens:
            self.lost[content.owner] = why

    def _replaced(self, content: ReplayContent, why: Cause | None = None) -> None:
        """A slot's content gives way to another one; what is in the RAM cache is not lost."""
        if self.ram is None:
            self._lose(content, "RAM cache off")
        elif content.text not in self.ram.known:
            self._lose(content, why or "slot taken")

    def _cause(self, index: int, slot: _Slot, by: ChosenBy, shared: int, best: int) -> Cause:
        """Why less came back than the best that was ever sent."""
        ideal = self.ideal[index]
        if not self.traffic.asked[index].cache_prompt:
            return "by request"
        if shared >= best:
            return "window" if self.settings.memory == "swa" else "checkpoint"
        if ideal.together or ideal.owner is None:
            return "together"
        chosen_of_idle = by == "similarity" and self.settings.build >= 6751
        """Then no other idle slot has more."""
        for other in self.slots:
            if other is slot or (chosen_of_idle and other.request is None):
                continue
            if self._shared(other.content, index) > shared:
                return "busy" if other.request is not None else "other slot"
        if self.ram is not None and self.ram.has_more(self.places[index], shared):
            return "refused"
        return self.lost.get(ideal.owner, "shifted")
