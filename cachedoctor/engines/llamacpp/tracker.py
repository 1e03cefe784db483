"""Folds events of one server into Sessions and finished Requests.

Knows the life of a request in the log. Knows no rule, no report, no input file.
"""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.base import Event, Message
from cachedoctor.engines.llamacpp import accounting, choosing, processing
from cachedoctor.engines.llamacpp.slot_state import SlotState
from cachedoctor.engines.llamacpp.startup import RESTART_MARKS, STARTUP, Startup
from cachedoctor.engines.llamacpp.threads import Threads
from cachedoctor.knowledge import builds
from cachedoctor.model import Mark, Request, Session

Handler = Callable[["Tracker", Event, SlotState], None]

HANDLERS: dict[str, Handler] = {**choosing.HANDLERS, **processing.HANDLERS}

_WHOLE = frozenset({"launch", "sleep_enter", "timing_total"})

ONCE = frozenset({"seq_rm"})
"""Printed for every batch; only the first of a request says what was reused."""

WANTED = frozenset(HANDLERS) | STARTUP | _WHOLE | {"timing_prompt", "timing_eval", "timing_head", "abort"}


class Tracker:
    """One origin of one input: feeds on events in line order, gives finished requests."""

    def __init__(
        self, path: str, origin: str | None, new_session: Callable[[str, str | None], Session],
        number: Callable[[], int], build: int | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.origin = origin
        self._new_session = new_session
        self._number = number
        self._build_option = build
        self.finished: list[Request] = []
        self._rows: set[Message] = set()
        self._open(1)

    def _open(self, line: int) -> None:
        """Begin a session at ``line``."""
        self.session = self._new_session(self.path, self.origin)
        self.session.first_line = self.session.last_line = line
        if self._build_option is not None:
            self.session.build, self.session.build_source = self._build_option, "option"
        self.startup = Startup(self.session)
        self.slots: dict[int, SlotState] = {}
        self.threads = Threads()
        self.ram: list[int] = []
        self.chosen: SlotState | None = None
        self.timing: SlotState | None = None
        self.purged = False
        self._rows.clear()
        self._clock = 0.0
        self._last_task = -1
        self._zero_seen = False
        self._asleep = False

    # ---- events

    def feed(self, event: Event) -> None:
        """Take the next event; finished requests are appended to ``self.finished``."""
        message = event.message
        if event.row not in self._rows:
            self._first_sight(event)
        self.session.last_line = event.line
        handler = HANDLERS.get(message)
        if handler is not None:
            slot = self.slot(event.slot) if event.slot >= 0 else self.chosen or self.slot(0)
            handler(self, event, slot)
        elif message == "launch":
            self._launch(event)
        elif message in ("timing_prompt", "timing_eval"):
            self._timing(event)
        elif message == "timing_head":
            self.timing = self.slot(event.slot)
        elif message in STARTUP:
            self._start(event)
        elif message == "sleep_enter":
            self._sleep()

    def _first_sight(self, event: Event) -> None:
        """A wording seen for the first time narrows the build."""
        row, session = event.row, self.session
        self._rows.add(row)
        session.seen.add(row.id)
        if session.build is not None or row.component in ("bare", "lib", "log", "error"):
            return
        low, high = builds.oldest(row.first), builds.newest(row.last)
        new_low = max(filter(None, (session.build_min, low)), default=None)
        new_high = min(filter(None, (session.build_max, high)), default=None)
        if new_low is None or new_high is None or new_low <= new_high:  # a fork may mix wordings: keep what was consistent
            session.build_min, session.build_max = new_low, new_high
            session.build_source = "wording" if new_low or new_high else None

    def slot(self, id: int) -> SlotState:
        """Return the state of the slot with this id."""
        found = self.slots.get(id)
        if found is None:
            found = self.slots[id] = SlotState(id, length=0 if self.session.starts_cold else None)
        return found

    def _start(self, event: Event) -> None:
        session = self.session
        if event.message in RESTART_MARKS and not self._asleep:
            again = event.message == "init_slots" and session.n_slots is not None and "init_slots" in session.settings
            if session.n_requests or again:
                self._restart(event)
        if event.message in ("init_slots", "load_model"):
            self.session.starts_cold = True
            if event.message == "init_slots":
                self._asleep = False
        self.startup.apply(event)

    def _restart(self, event: Event) -> None:
        self.close_open(lost=True)
        self._open(event.line)
        self._rows.add(event.row)
        self.session.seen.add(event.row.id)

    def _sleep(self) -> None:
        """A sleeping server keeps its ids and loses its context, and with it every cache."""
        self._asleep = True
        self.ram.clear()
        for slot in self.slots.values():
            slot.length, slot.thread, slot.checkpoints = 0, None, []

    # ---- the life of a request

    def _launch(self, event: Event) -> None:
        seconds = event.seconds
        reset = event.task == 0 and (self._zero_seen or self._last_task > 16)
        if self.session.n_requests and (reset or (seconds is not None and seconds < self._clock - 1.0)):
            self._restart(event)
        if seconds is not None:
            self._clock = seconds
        self._last_task = max(self._last_task, event.task)
        self._zero_seen |= event.task == 0
        slot = self.slot(event.slot)
        request = self.begin(event, slot)
        self._clear_idle(slot)
        if event.fields.get("is_child"):
            request.parent = -1  # the parent is launched right after its children
        else:
            for other in self.slots.values():
                child = other.request
                if child is not None and child.parent == -1:
                    child.parent = event.task

    def _clear_idle(self, taken: SlotState) -> None:
        """From b8672 on, with unified KV and a RAM cache, idle slots are saved to RAM and cleared at every launch."""
        s = self.session
        if s.setting("kv_unified") is True and s.setting("cache_idle_slots") is not False and s.at_least(8672):
            for slot in self.slots.values():
                if slot is not taken and (slot.request is None or slot.released) and s.setting("cache_ram_mib") != 0:
                    slot.length, slot.thread = 0, None

    def begin(self, event: Event, slot: SlotState, partial: bool = False) -> Request:
        """Open the request that ``event`` starts (or, ``partial``, is the first line of that we see)."""
        if slot.request is not None:
            self.finish(slot, lost=not slot.released)
        session, choice = self.session, slot.choice
        request = Request(
            self._number(), session.index, self.path, slot.id, event.task, event.line, event.line, partial=partial
        )
        session.n_requests += 1
        request.held_tokens = slot.length
        request.held_thread = slot.thread
        request.marks["start"] = Mark(event.line, event.text)
        if session.seen & {"ckpt_created", "ckpt_enabled"} or slot.checkpoints:
            request.held_checkpoints = len(slot.checkpoints)
        if choice is not None:
            choosing.hand_over(choice, request, self)
            slot.choice = None
        slot.request, slot.released = request, False
        return request

    def request_of(self, event: Event, slot: SlotState) -> Request:
        """Return the request that a slot line belongs to; a log that begins in the middle opens it here."""
        request = slot.request
        if request is None or (event.task >= 0 and request.task != event.task):
            request = self.begin(event, slot, partial=True)
        request.last_line = event.line
        return request

    def _timing(self, event: Event) -> None:
        slot = self.slot(event.slot) if event.slot >= 0 else self.timing
        if slot is None or slot.request is None or (event.task >= 0 and slot.request.task != event.task):
            if event.slot < 0 or slot is None:
                return  # bare timing lines of a log cut inside the block
            self.request_of(event, slot)
        request = slot.request
        assert request is not None
        request.last_line = event.line
        if event.message == "timing_prompt":
            request.processed_tokens = event.fields["n_prompt_processed"]
            ms = event.fields["prompt_ms"]
            request.prompt_ms = ms if ms >= 0 and ms != float("inf") else None
            request.marks["timing"] = Mark(event.line, event.text)
        else:
            request.generated_tokens = event.fields["n_gen"]
            if slot.released:
                self.finish(slot)

    def released(self, event: Event, slot: SlotState, tokens: int, truncated: bool) -> None:
        """Handle the release of a slot: up to b6628 the timing lines follow it, later they precede it."""
        request = self.request_of(event, slot)
        request.released_tokens = tokens
        request.shifted |= truncated
        request.marks["release"] = Mark(event.line, event.text)
        slot.released = True
        if request.generated_tokens is not None or request.cancelled or request.error is not None:
            self.finish(slot)

    def finish(self, slot: SlotState, lost: bool = False) -> None:
        """Close the request of ``slot``. ``lost``: its end is not in the log."""
        request = slot.request
        if request is None:
            return
        slot.request, slot.released = None, False
        if lost:
            request.partial = True
        elif request.generated_tokens is None and request.error is None and not request.partial:
            request.cancelled = True  # released without timing lines
        if request.parent == -1:
            request.parent = None
        self._settle(request, slot)
        self.finished.append(request)

    def _settle(self, request: Request, slot: SlotState) -> None:
        session = self.session
        accounting.derive_counts(request)
        if request.restored_from_ram:
            choosing.settle_swap(request, self.threads)
        accounting.common_prefix(request, session, self.checkpoint_lines_shown())
        if self.checkpoint_lines_shown():
            for name in ("tried", "restored", "created", "erased"):
                if getattr(request, name) is None:
                    setattr(request, name, 0)
        thread = self.threads.join(request) if request.parent is None else None
        cold = thread is None and request.prompt_tokens is not None and request.held_tokens is not None
        request.thread_turn = 0 if thread is None else thread.turns
        accounting.judge(request, thread.total if thread is not None else request.held_tokens, cold)
        if request.released_tokens is not None:
            slot.length = request.released_tokens
        if request.released_tokens is None or request.error is not None:
            return
        slot.shifted = request.shifted
        if request.parent is None and (request.prompt_tokens is not None or request.cancelled):
            record = self.threads.record(request, thread, request.released_tokens)
            request.thread = slot.thread = record.id

    def checkpoint_lines_shown(self) -> bool:
        """Whether checkpoint lines would be in this log: the default hides them from b9873 on."""
        seen = self.session.seen
        if seen & {"new_prompt", "seq_rm"}:
            return True
        return bool(seen & {"ckpt_created", "ckpt_check", "ckpt_restored", "ckpt_erased", "force_full", "pc_looking"})

    def quiet(self) -> None:
        """The log fell silent: a released request gets no more timing lines."""
        for slot in self.slots.values():
            if slot.request is not None and slot.released:
                self.finish(slot)

    def give_up(self, number: int) -> None:
        """Close the request with this number: too many that started later are already finished."""
        for slot in self.slots.values():
            if slot.request is not None and slot.request.index == number:
                self.finish(slot, lost=True)

    def close_open(self, lost: bool = True) -> None:
        """End of the log, or of the process: close what is still open."""
        for slot in self.slots.values():
            if slot.request is not None:
                self.finish(slot, lost=lost and not slot.released)
