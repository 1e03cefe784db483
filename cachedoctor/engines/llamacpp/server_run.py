"""One run of a llama-server process: its facts, its slots, and events that concern several slots.

The only writer of ``Facts``. ``lines.py`` and ``blocks.py`` call its methods, and those of ``Slot`` for events that
concern one slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.llamacpp.client_lines import Clients
from cachedoctor.engines.llamacpp.conversations.join import SPAN
from cachedoctor.engines.llamacpp.settle import ConversationMemory, Effects, settle, settle_unsearched
from cachedoctor.engines.llamacpp.slot import ANSWER, IdleSave, RunMemory, Slot
from cachedoctor.engines.llamacpp.startup import Startup, StartupLine
from cachedoctor.knowledge import builds
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Facts, Incident, IncidentName, Mark, Request, Session, Setting
from cachedoctor.model.observed import NOBODY, KnownLength, Observed, SelectedBy, SlotCompared

_WRAPPERS_PRINT = frozenset({"listening", "n_parallel_auto", "build_info"})
"""Lines of the program around the server: embedders keep an old wording in a new build."""
_HEADER_FIELD = late(r"\b(cch|cc_[a-z_]{1,32})=([^;\s\"\\]{1,128})")
_MIB = 1 << 20
_MAX_ENTRIES = 256
"""Conversations whose saved states are measured."""


class SavedPrompt(msgspec.Struct, gc=False, frozen=True):
    """A prompt that is being saved to the RAM cache."""

    slot: Slot | None
    """Slot whose content it is; None if unknown."""
    length: int
    """Tokens."""
    before: Mark | None
    """The line that saved an entry of this length earlier; None without one."""


_CUT = 256
"""Requests without an end that are remembered."""
_SESSIONS = 16
"""Latest runs, which may be of one of several servers: each line of another server seems to begin a new run."""
_FEW = 2
_SHARE = 10
"""One request in this many must have continued: one or two alone may come from a log that was put together."""


class MixedLines(msgspec.Struct):
    """Evidence that lines of several servers are mixed in one origin.

    A slot has one request at a time. If a request continues after the next one began on its slot, the two are of
    different servers.
    """

    cut: dict[tuple[int, int], None] = msgspec.field(default_factory=dict)
    """Slot and task of requests whose first line was there, but not their end when another one began."""
    begun: int = 0
    resumed: int = 0
    sessions: deque[Session] = msgspec.field(default_factory=lambda: deque(maxlen=_SESSIONS))

    @property
    def is_sure(self) -> bool:
        """Whether enough requests continued to exclude an accident."""
        return self.resumed >= _FEW and self.resumed * _SHARE >= self.begun

    def opened(self, session: Session) -> None:
        """Note that a run begins."""
        session.mixed = self.is_sure
        self.sessions.append(session)

    def closed(self, seen: Observed) -> None:
        """Note a request without an end.

        One without a number cannot be recognised when it continues; nor can one without a beginning, because numbers
        recur after a restart.
        """
        if seen.task < 0 or seen.partial:
            return
        self.cut[seen.slot, seen.task] = None
        if len(self.cut) > _CUT:
            del self.cut[next(iter(self.cut))]

    def began(self, slot: int, task: int, *, partial: bool) -> None:
        """Note that a request begins; ``partial``: with a line that is not its first."""
        self.begun += 1
        if self.cut and (slot, task) in self.cut:
            del self.cut[slot, task]
            self.resumed += partial
            if self.is_sure:
                for session in self.sessions:
                    session.mixed = True


class ServerRun:
    """What the lines of one run of a server show; finished requests are passed to ``ended``."""

    def __init__(
        self,
        session: Session,
        build: int | None,
        number: Callable[[], int],
        ended: Callable[[Request], None],
        clients: Clients | None,
        scanner: Scanner,
        mixed: MixedLines,
    ) -> None:
        """Begin before the first line.

        Args:
            session: as the report lists it; has what was known beforehand.
            build: of llama.cpp, when it was given.
            number: gives the next number of a request.
            ended: takes finished requests, and again those that turned out to belong to another conversation.
            clients: knows who asked; None if no request is listed.
            scanner: of its lines; of some it gives only the first of each task.
            mixed: sees requests that go on after the next one on their slot.
        """
        self.session = session
        self.facts = Facts(
            session.index, session.path, session.origin, n_slots=session.n_slots, settings=dict(session.settings),
            given=session.given,
        )  # fmt: skip
        if build is not None:
            self.learn(build=build, build_source="option")
        elif session.build is not None:
            self.learn(build=session.build, build_source=session.build_source)
        self.slots: dict[int, Slot] = {}
        self.chosen: Slot | None = None
        self._idle: Slot | None = None
        """The idle slot that is being saved to the RAM cache."""
        self._saved: SavedPrompt | None = None
        self.timing: Slot | None = None
        self.bad_batch: Mark | None = None
        """The last line that shows that the library refused a batch, whatever else it shows."""
        self.asleep = False
        self.shapes: set[Hashable] = set()
        """Forms of fused lines whose rows have occurred."""
        self.rows: set[Message] = set()
        self.started: set[str] = set()
        """Start-up messages that were printed."""
        self.clients = clients
        self._mixed = mixed
        mixed.opened(session)
        self.first = scanner.first
        self._forget = scanner.forget
        self.past = ConversationMemory()
        self._number = number
        self._ended = ended
        self._startup = Startup()
        self._before = RunMemory()
        self._looks = self._children = False
        self._clears_idle: bool | None = None
        self._header: tuple[Mark, dict[str, str]] | None = None
        self._headers = 0
        self._stamp = b""
        self._last_task = -1
        self._newest = -1
        self._zero_seen = False
        self._forked = False

    # ---- facts

    def is_of(self, program: str) -> None:
        """Note that a fork writes, whose wordings and build numbers show nothing about llama.cpp's builds."""
        self.session.program, self._forked = program, True
        if self.facts.build_source != "option":
            self.learn(build=None, build_min=None, build_max=None, build_source=None)

    def learn(self, **changes: Any) -> None:
        """Replace facts; requests that have ended keep the old facts."""
        self.facts = msgspec.structs.replace(self.facts, **changes)
        self.session.settings.update(changes.pop("settings", {}))
        self.session.learn(**changes)
        self._clears_idle = None

    def first_sight(self, row: Message, *, whole: bool = True) -> None:
        """Narrow the build by a wording seen for the first time; not if fields are missing: other wordings fit too."""
        self.rows.add(row)
        facts = self.facts
        self._before.shows_ram |= "ram_search" in row.shows
        self._before.makes_checkpoints |= "makes_checkpoints" in row.shows
        self.learn(seen=facts.seen | {row.id}, shows=facts.shows.union(row.shows))
        known = (facts.build is not None and facts.build_source != "paste") or self._forked
        if not whole or known or row.component in ("bare", "lib", "log", "error"):
            return
        if row.has_func or row.id in _WRAPPERS_PRINT:  # with and without a function's name, the text is the same
            return
        low = max(filter(None, (facts.build_min, builds.oldest(row.first))), default=None)
        high = min(filter(None, (facts.build_max, builds.newest(row.last))), default=None)
        if low is None or high is None or low <= high:  # a fork may mix wordings: keep what was consistent
            self.learn(build_min=low, build_max=high, **self._source(low, high))

    def _source(self, low: int | None, high: int | None) -> dict[str, Any]:
        """How the build is known between these bounds: a pasted one that does not write these words is another's."""
        build = self.facts.build
        if build is not None and (low or build) <= build <= (high or build):
            return {}
        return {"build": None, "build_source": "wording" if low or high else None}

    def start(self, line: StartupLine) -> None:
        """Process a start-up line."""
        if line.message == "init_slots":
            self.asleep = False
        self.started.add(line.message)
        if line.message == "kv_size":
            self._measure_buffer(line)
        changes = self._startup.changes(self.facts, line)
        if self._forked:
            changes = {name: value for name, value in changes.items() if not name.startswith("build")}
        if changes:
            self.learn(**changes)

    def _measure_buffer(self, line: StartupLine) -> None:
        """Keep what a token takes in the first buffer of attention, and a slot in the first of recurrent layers."""
        fields, sizes = line.fields, self.session.sizes
        size = (fields.get("size") or 0.0) * _MIB
        cells = (fields.get("kv_size") or 0) * (fields.get("n_stream") or 0)
        states = fields.get("n_seq_max") or 0
        if cells and not sizes.kv_token:
            sizes.kv_token = size / cells
        elif b" R (" in line.text and states and not sizes.recurrent:
            sizes.recurrent = size / states

    def set(self, name: str, value: Any, mark: Mark, *, text: bool) -> None:
        """Store a setting that traffic shows, with the first line that showed it."""
        found = self.facts.settings.get(name)
        first = Setting(value, mark.line, mark.text if text else b"")
        new = first if found is None else msgspec.structs.replace(found, value=value)
        self.learn(settings={**self.facts.settings, name: new})

    def state(self, name: IncidentName, mark: Mark, **numbers: float) -> Incident:
        """Record an incident that one line proves; the first line of its kind is kept."""
        found = self.session.incidents.get(name)
        if found is None:
            found = self.session.incidents[name] = Incident(mark, numbers)
        else:
            found.count += 1
        return found

    @property
    def quoted(self) -> int:
        """Number of quoted prompt lines, if two of them differ."""
        return self._headers if self.session.incidents.keys() & {"header", "value"} else 0

    def header(self, text: str, mark: Mark) -> None:
        """Compare a client's billing header in a pasted prompt with the previous one."""
        fields = dict(_HEADER_FIELD.findall(text))
        self._headers += 1
        before, self._header = self._header, (mark, fields)
        if before is None or before[1].get("cc_entrypoint") != fields.get("cc_entrypoint"):
            return  # another program
        changed = [name for name, value in fields.items() if before[1].get(name, value) != value]
        if changed and "header" not in self.session.incidents:
            field = next((name for name in changed if name != "cc_version"), changed[0])
            self.session.incidents["header"] = Incident(mark, before=before[0], field=field)

    def prompt_changed(self, before: Mark, after: Mark, kind: str, place: int) -> None:
        """Record a pasted diff of two prompts, whose first change is a value of this kind."""
        self._headers += 2
        self.session.incidents.setdefault("value", Incident(after, {"place": place}, before, kind))

    def window(self, tokens: int | None) -> None:
        """Store the sliding window that a request line prints."""
        if tokens is not None and tokens != self.facts.window:
            self.learn(window=tokens)

    def read_leniently(self) -> None:
        """Note that lines were read which are not as the server printed them."""
        if not self.facts.lenient:
            self.learn(lenient=True)

    def end_anonymous(self, message: str) -> None:
        """Close the request without a task if this line begins another one."""
        for slot in self.slots.values():
            request = slot.request_of(-1)
            if request is not None and (slot.released or request.has_begun(message)):
                self.close(slot, lost=not slot.released)

    # ---- this run or the next

    @property
    def worked(self) -> bool:
        """Whether a request has begun."""
        return self.session.n_requests > 0

    def restarts(self, task: int, now: bytes) -> bool:
        """Whether a launch belongs to a new run: its clock (``now``) or its task number went back."""
        before = self._stamp
        if task and now >= before and len(now) == len(before):
            return False
        reset = task == 0 and (self._zero_seen or self._last_task > 16)
        return (reset or self._clock_fell(now)) and self.worked

    def goes_on(self, task: int, now: bytes) -> bool:
        """Whether a launch belongs to this run; if so, it is remembered."""
        before = self._stamp
        if task and now >= before and len(now) == len(before):  # as nearly always
            self._stamp = now
            if task > self._last_task:
                self._last_task = task
            return True
        if self.restarts(task, now):
            return False
        self.launched(task, now)
        return True

    def launched(self, task: int, now: bytes) -> None:
        """Remember clock and number of a launch of this run."""
        self._stamp = now or self._stamp
        if task > self._last_task:
            self._last_task = task
        if task == 0:
            self._zero_seen = True

    def _clock_fell(self, now: bytes) -> bool:
        """Whether an uptime lies more than a second before the last one seen."""
        before = self._stamp
        if not now or not before or (len(now) == len(before) and now >= before):
            return False
        return _uptime_s(now) < _uptime_s(before) - 1

    # ---- slots

    def slot(self, id: int) -> Slot:
        """Return the slot with this id."""
        found = self.slots.get(id)
        if found is None:
            cold = self.facts.starts_cold
            found = self.slots[id] = Slot(id, 0 if cold else None, positions_known=cold)
        return found

    def open_requests(self) -> list[Observed]:
        """Requests that have begun and not ended, by slot."""
        return [slot.open for slot in self.slots.values() if slot.open is not None]

    def request_of(self, task: int) -> Observed | None:
        """The open request of this task."""
        return next((request for request in self.open_requests() if request.task == task), None)

    def timed(self, computed: int | None = None) -> Observed | None:
        """The request of a timing line without slot and task: of the header above the line, else the only open request.

        Posts leave the header out. Of several open requests it is the one with ``computed`` tokens left to compute, and
        for the reply the one whose prompt was timed; None if that does not decide, or if the log was cut inside the
        block.
        """
        owner = self.request_of(-1) if self.timing is None else self.timing.open
        if owner is not None:
            return owner
        working = self.open_requests()
        if len(working) > 1:
            working = [request for request in working if request.awaits(computed)]
        return working[0] if len(working) == 1 else None

    # ---- from the choice to the launch

    def look(self, slot: Slot, mark: Mark, lcp: int, n_prompt: int) -> None:
        """Note that the server compares a prompt with a slot's content."""
        waits = slot.choice is None or slot.choice.selected_by != "id"
        if waits and slot.released:
            self.close(slot)
        self._looks |= slot.look(mark, lcp, n_prompt)

    def choose(
        self,
        slot: Slot,
        mark: Mark,
        by: SelectedBy | None,
        similarity: float | None = None,
        f_keep: float | None = None,
        t_last: int | None = None,
    ) -> None:
        """Note the choice of a slot, and how much the other checked slots share with the prompt."""
        if slot.released:
            self.close(slot)
        others: Sequence[SlotCompared] = ()
        if self._looks:
            self._looks = False
            compared = (other.overlook() for other in self.slots.values() if other is not slot)
            others = [one for one in compared if one is not None]
        slot.choose(mark, by, similarity, f_keep, t_last, self._before.evictions, others)
        self.chosen, self._idle = slot, None

    @property
    def choosing(self) -> Slot | None:
        """The slot that is chosen and has no launch yet."""
        return self.chosen if self.chosen is not None and self.chosen.choice is not None else None

    def empty(self, slot: Slot) -> None:
        """Note that an idle slot is empty."""
        if slot.idle:
            slot.empty()

    def clear(self, slot: Slot, tokens: int, mark: Mark, *, for_task: bool) -> None:
        """Empty an idle slot: after its save to RAM, while it is chosen, or because a program requested it.

        ``for_task``: the line names a task, whose prompt is copied to the slot.
        """
        if not slot.idle:
            return
        asked = not for_task and slot.idle_saved is None and slot.choice is None
        if asked and slot.released:
            self.close(slot)
        if asked and slot.thread is not None and slot.length and tokens:
            self.past.erase(slot.thread, mark)
        thread, saved = slot.clear()
        if saved is not None and thread is not None and tokens:
            self.past.clear_idle(thread, mark, saved)
            for request in self.open_requests():
                if request.index == self._newest and thread not in request.passed_over:
                    request.record_passed_over(thread)  # it was launched just before, elsewhere
        slot.empty()

    def purge(self, slot: Slot, tokens: int, mark: Mark) -> None:
        """Empty a slot because memory ran out."""
        self.state("purged", mark, slot=slot.id, tokens=tokens)
        if "kv_purged" not in self.facts.settings:
            self.set("kv_purged", True, mark, text=True)
        if slot.released:
            self.close(slot)
        if slot.thread is not None:
            self.past.purge(slot.thread, mark)
        self.empty(slot)

    # ---- the RAM prompt cache

    def save(self, length: int, size: float | None, mark: Mark) -> None:
        """Note that a prompt is saved to the RAM cache: of the chosen slot, or of an idle one."""
        before = self.past.ram.saved.get(length)
        self.past.ram.save(length, mark)
        self._saved = SavedPrompt(self.choosing or self._idle, length, before)
        if size and size > (self.session.sizes.state or 0.0):
            self.session.sizes.state, self.session.sizes.state_tokens = size, length
        owner = self.choosing
        if owner is None:
            self.session.sizes.saving = size
            self._measure_entry(size, None)
            return
        owner.ram_saved(length)
        self.past.refused.pop(owner.thread, None)
        if size is not None:  # an entry of the cache is this state and the slot's checkpoints
            size += owner.checkpoints * (self.session.sizes.checkpoint or 0.0)
        self.session.sizes.saving = size
        self._measure_entry(size, owner.thread)

    def contains_copy(self, length: int | None, mark: Mark) -> None:
        """Note that the prompt being saved begins with an entry of ``length`` tokens, or (None) is the start of one.

        If the request that left this prompt came after the entry and the RAM cache was not searched for it, the server
        recomputed tokens that the entry contained.
        """
        saved, self._saved = self._saved, None
        if saved is None:
            return
        if length is None:
            if saved.before is None:
                return
            self.past.ram.save(saved.length, saved.before)
            length = saved.length
        slot = saved.slot
        if slot is None or slot.open is not None or slot.length != saved.length:
            return
        again = settle_unsearched(self.past, slot, length, mark)
        if again is not None and self._newest - again.index < SPAN:
            self._ended(again)

    def evict(self, size: float | None, limit: float | None, mark: Mark, *, oversize: bool) -> None:
        """Note that a prompt left the RAM cache, or exceeded its ``limit`` (MiB, if printed) and never got there."""
        self._measure_entry(size, None)
        sizes = {"size": size, "limit": limit}
        known = {name: mib for name, mib in sizes.items() if mib}
        self.state("oversize" if oversize else "evicted", mark, **known)
        owner = self.choosing
        if oversize:
            for other in self.slots.values():
                other.idle_copy_gone(self._before.evictions)
        else:
            self._before.evictions += 1
        if oversize and owner is not None and owner.thread is not None:
            self.past.refuse(owner.thread, mark)
        else:  # whose prompt it was is not printed
            self._before.evicted = mark
        self.set("ram_evictions", (self.facts.setting("ram_evictions") or 0) + 1, mark, text=False)
        self.past.ram.forget()

    def save_idle(self, slot: Slot, mark: Mark) -> None:
        """Note the save of an idle slot: the RAM cache evicts the oldest prompt first, this one after all others."""
        prompts = self.past.ram.prompts
        gone_at = None if prompts is None else self._before.evictions + prompts + 1
        slot.save_idle(IdleSave(mark, gone_at))
        self._idle = slot

    def ram_failed(self, size: int | None, mark: Mark) -> None:
        """Note that a prompt of the RAM cache could not be restored into the slot that is being chosen."""
        self.state("ram_failed", mark, **({} if size is None else {"size": size}))
        if self.choosing is not None:
            self.choosing.ram_failed(mark)

    def ram_state(self, prompts: int, mib: float | None) -> None:
        """Note the printed state of the RAM cache: saving has ended, and the limits apply again."""
        self.past.ram.prompts = prompts
        sizes = self.session.sizes
        sizes.saving, gone = None, sizes.evicted
        sizes.evicted = 0.0
        if mib is None:
            return
        sizes.ram = mib
        if mib > sizes.ram_most:
            sizes.ram_most = mib
        sizes.saving_most = max(sizes.saving_most, mib + gone)

    def _measure_entry(self, mib: float | None, thread: int | None) -> None:
        """Keep what the largest saved prompt takes, in all and of each conversation."""
        if not mib:
            return
        sizes = self.session.sizes
        sizes.entry = max(sizes.entry or 0.0, mib)
        if thread is not None and (thread in sizes.conversations or len(sizes.conversations) < _MAX_ENTRIES):
            sizes.conversations[thread] = max(sizes.conversations.get(thread, 0.0), mib)

    def measure_checkpoint(self, mib: float | None) -> None:
        """Keep the size of the largest checkpoint read; of created checkpoints only the first one is read."""
        if mib is not None and (self.session.sizes.checkpoint or 0.0) < mib:
            self.session.sizes.checkpoint = mib

    # ---- requests

    def launch(self, slot: Slot, task: int, mark: Mark, *, child: bool = False) -> Observed:
        """Begin a request on a slot; choices of ``n > 1`` are launched right before their parent."""
        self.session.sizes.saving = None
        request = self._begin(slot, task, mark, child=child, partial=False)
        if slot.ended == task:  # logs that were joined by hand: a number comes twice
            self._forget(slot.id)
        if self._clears_idle is not False:
            self._clear_idle(slot, request)
        if child:
            request.record_parent(-1)
            self._children = True
        elif self._children:
            self._children = False
            for other in self.open_requests():
                if other.parent == -1:
                    other.record_parent(task)
        return request

    def attend(self, slot: Slot, task: int, mark: Mark) -> Observed:
        """Return the request of a line; if the log begins in the middle of a request, open it."""
        request = slot.open
        if request is None or (task >= 0 and request.task != task):
            request = self._begin(slot, task, mark, child=False, partial=True)
        request.extend(mark.line)
        return request

    def _begin(self, slot: Slot, task: int, mark: Mark, *, child: bool, partial: bool) -> Observed:
        if slot.open is not None:
            self.close(slot, lost=not slot.released)
        self.session.n_requests = begun = self.session.n_requests + 1
        if begun == 2:
            self.learn(several=True)
        if task < 0 and self.facts.lenient and slot.choice is not None and "select" in slot.choice.marks:
            partial = False  # its line "processing task" has no number, and is too short to be told from prose
        asked = NOBODY if self.clients is None else self.clients.launched(mark.line, child=child)
        self._mixed.began(slot.id, task, partial=partial)
        self._newest = self._number()
        return slot.launch(self._newest, task, mark, asked, self._before, partial=partial)

    def _clear_idle(self, taken: Slot, request: Observed) -> None:
        """From b8672 on, with unified KV and a RAM cache, idle slots are saved to RAM and cleared at every launch."""
        if self._clears_idle is None:
            known = self.facts
            told, ram = known.setting("cache_idle_slots"), known.said("cache_ram_mib")
            # a start that prints how large the RAM cache is prints this, too, unless it is switched off
            kept = told if told is not None else ram is None or ram.line is None
            has_ram = ram is None or ram.value != 0
            self._clears_idle = (
                kept and has_ram and known.setting("kv_unified") is True and known.at_least(8672) is True
            )
        if self._clears_idle:
            for slot in self.slots.values():
                if slot is not taken and slot.idle:
                    request.record_passed_over(slot.thread)
                    slot.clear_silently()

    def prompt(self, slot: Slot, task: int, tokens: int, context: int, mark: Mark) -> None:
        """Note the length of a prompt and the context of its slot."""
        request = slot.request_of(task) or self._begin(slot, task, mark, child=False, partial=True)
        request.record_prompt(tokens, mark)
        self.fit(slot, context)

    def fit(self, slot: Slot, context: int) -> None:
        """Note the context of a slot, in tokens, from the line of a prompt."""
        slot.fit(context)
        self.session.sizes.saving = None
        if self.facts.n_ctx_slot is None and context:
            self.learn(n_ctx_slot=context)

    def batch(self, slot: Slot, task: int, cached: int, mark: Mark) -> None:
        """Note a batch of a prompt; the first batch shows how much was reused."""
        request = slot.request_of(task)
        if request is None:
            self._begin(slot, task, mark, child=False, partial=True).record_later_batch(mark)
        else:
            request.record_batch(cached, mark)

    def restore_failed(self, mark: Mark) -> None:
        """Note a failed restore of a checkpoint; the line names no slot, so it counts for the one that is searching."""
        found = [request for request in self.open_requests() if request.searching]
        checks = found[0].checks if len(found) == 1 else ()
        if checks:
            found[0].record_failed_restore(checks[-1].pos_max + 1, mark)
        else:
            self.state("checkpoint_failed", mark)

    def misplaced(self, sequence: int, mark: Mark) -> None:
        """Note that the memory of a sequence (the number of its slot) does not end where a batch begins."""
        self.state("positions", mark)
        slot = self.slots.get(sequence)
        if slot is not None and slot.open is not None:
            slot.open.record_mark("positions", mark)

    def place(self, sequence: int, *, stored: int | None = None, batch: int | None = None) -> None:
        """Note where the memory of a sequence ended, or where its batch began, from the lines below the error."""
        slot, stated = self.slots.get(sequence), self.session.incidents.get("positions")
        if stated is not None and stated.count == 1:
            stated.numbers |= {"stored": stored} if stored is not None else {"batch": batch or 0}
        if slot is not None and slot.open is not None:
            slot.open.record_positions(stored=stored, batch=batch)

    def known_length(self, request: Observed, length: int) -> KnownLength | None:
        """Return the conversation that left a slot with this length after an earlier request; None without one."""
        return self.past.known(length, request.first_line)

    def begin_unseen(self, task: int, mark: Mark) -> Observed:
        """Begin a request of a task that reached no slot: a free slot is used for it, and keeps its content."""
        free = next((slot for slot in self.slots.values() if slot.open is None), None) or self.slot(len(self.slots))
        return self._begin(free, task, mark, child=False, partial=False)

    def sleep(self, mark: Mark) -> None:
        """Note that the server sleeps: it keeps its ids and loses its context and all caches."""
        self.asleep = True
        self.past.sleep(mark if self.worked else None)
        for slot in self.slots.values():
            slot.sleep()

    # ---- ends

    def close(self, slot: Slot, *, lost: bool = False) -> None:
        """End the request of a slot and derive its result. ``lost``: its end is not in the log."""
        if slot.open is None:
            return
        if lost:
            self._mixed.closed(slot.open)
        facts, session = self.facts, self.session
        seen = slot.end(slot.open, lost=lost or (facts.lenient and slot.open.untimed))
        shown = "checkpoint_counts" in facts.shows
        if shown:  # else hidden at this level: unknown, not none
            slot.count(seen.created or 0, seen.erased or 0, facts.setting("ctx_checkpoints"))
        file, released = session.file_of(seen.first_line), seen.released_tokens
        request, effects = settle(seen, facts, self.past, file, slot, self.slots, shown=shown)
        if released:
            self.past.lengths.append(released)
        if effects is not None:
            self._apply(effects, slot)
        if released is not None:
            if not request.partial:
                session.n_whole += 1
                for incident in session.incidents.values():
                    incident.followed = True
            # refused before it touched the slot, whatever the release says (0 up to b6628)
            if seen.error is None or "cached" in seen.marks:
                before = slot.thread if request.parent is None else ANSWER
                slot.hold(released, before if request.thread is None else request.thread)
        self._ended(request)

    def _apply(self, effects: Effects, slot: Slot) -> None:
        """Take over what a settled request of this slot changes."""
        for number, thread in effects.slot_threads.items():
            self.slots[number].belongs_to(thread)
        if slot.dropped:
            slot.keep(effects.kept)
        if self.facts.memory == "swa":
            slot.processed(effects.stretch)
        self.past.apply(effects)
        if effects.short:
            self.session.sizes.short = self.past.short
        for revised in effects.revised:
            self._ended(revised)

    def quiet(self) -> None:
        """Note that no lines came for a while: a released request gets no more timing lines."""
        for slot in self.slots.values():
            if slot.released:
                self.close(slot)

    def give_up(self, number: int) -> None:
        """Close the request with this number: too many that started later are already finished."""
        for slot in self.slots.values():
            if slot.open is not None and slot.open.index == number:
                self.close(slot, lost=True)

    def close_open(self, *, lost: bool = True) -> None:
        """End the log or the process: close all open requests.

        Excerpts may end between the choice of a slot and the launch, after all lines about the RAM cache.
        """
        if not self.worked:
            for slot in self.slots.values():
                if slot.choice is not None and "select" in slot.choice.marks:
                    self._begin(slot, -1, slot.choice.marks["select"], child=False, partial=True)
        for slot in self.slots.values():
            if slot.open is not None:
                self.close(slot, lost=lost and not slot.released)


def _uptime_s(stamp: bytes) -> int:
    """Whole seconds since the start of the server from ``M.SS.mmm.uuu`` (minutes are unbounded)."""
    minutes, _, rest = stamp.partition(b".")
    seconds = rest[:2]
    return int(minutes) * 60 + int(seconds) if minutes.isdigit() and seconds.isdigit() else 0
