"""Folds events of one server into Sessions and finished Requests.

Knows which handler a message has, and when a new life of the server begins. Knows no rule, no report, no input file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from cachedoctor.engines.base import Event, Message, uptime_seconds
from cachedoctor.engines.llamacpp import choosing, fused, losses, processing, requests, together
from cachedoctor.engines.llamacpp.clients import ANSWERED, Clients
from cachedoctor.engines.llamacpp.slot_state import IdleSave, RamCache, SlotState
from cachedoctor.engines.llamacpp.startup import RESTART_MARKS, STARTUP, Startup
from cachedoctor.engines.llamacpp.threads import Threads
from cachedoctor.engines.scanner import Plan, Scanner
from cachedoctor.knowledge import builds
from cachedoctor.model import Mark, Request, Session

Handler = Callable[["Tracker", Event, SlotState], None]


def _launch(tracker: Tracker, event: Event, slot: SlotState) -> None:
    tracker.check_restart(event, event.task, event.stamp)
    requests.launch(
        tracker, tracker.slot(event.slot), event.task, event.line, event.text, bool(event.fields.get("is_child"))
    )


def _timing_head(tracker: Tracker, event: Event, slot: SlotState) -> None:
    """The lines below carry no task; a log that begins, or is torn, before them opens the request here."""
    tracker.timing = slot
    if event.task not in (-1, slot.ended):
        requests.of_event(tracker, event, slot)


def _sleep(tracker: Tracker, event: Event, slot: SlotState) -> None:
    tracker.ram.saved.clear()
    losses.sleep(tracker, event)


HANDLERS: dict[str, Handler] = {
    **choosing.HANDLERS,
    **processing.HANDLERS,
    **losses.HANDLERS,
    "launch": _launch,
    "timing_head": _timing_head,
    "timing_prompt": requests.timing,
    "timing_eval": requests.timing,
    "sleep_enter": _sleep,
}

_WRAPPERS_PRINT = frozenset({"listening", "n_parallel_auto", "build_info"})
"""Lines of the program around the server: embedders keep an old wording in a new build."""

PLAN = Plan(
    frozenset(HANDLERS) | STARTUP,
    once=frozenset({"seq_rm"}),  # printed for every batch; only the first of a request says what was reused
    counted=frozenset({"ckpt_created", "ckpt_created_swa"}),
    fused_groups=fused.GROUPS,
)
LISTING_PLAN = msgspec.structs.replace(PLAN, wanted=PLAN.wanted | {ANSWERED})
"""With what is only of interest where every request is listed."""


class Tracker:
    """One origin of one input: feeds on events in line order, gives finished requests."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        number: Callable[[], int],
        scanner: Scanner,
        build: int | None = None,
        hand_over: Callable[[Tracker, int], None] = lambda tracker, count: None,
        time_of: Callable[[int], str | None] | None = None,
    ) -> None:
        """Begin without a line.

        Args:
            hand_over: takes so many of the finished requests, the first ones, before what they rest on changes.
            time_of: wall clock of the line with this number, where its wrapper has one; left out where no request is
                listed, since then nobody asks when one began and for whom.
        """
        self.path = path
        self.origin = origin
        self.number = number
        self.take = scanner.take
        self.lines_of = scanner.recognise_all
        self.singly = scanner.singly
        self.first = scanner.first
        self.forget = scanner.forget
        self._new_session = new_session
        self._build_option = build
        self._hand_over = hand_over
        self._time_of = time_of
        self._earlier = 0
        """Requests that were finished before this event."""
        self.finished: list[Request] = []
        self.revised: list[Request] = []
        """Requests given before that later ones showed to belong to another conversation."""
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
        self.ram = RamCache()
        self.chosen: SlotState | None = None
        self.timing: SlotState | None = None
        self.children = False
        self.watches_ram = False
        self.looks = False
        self.shows_checkpoints = False
        self.makes_checkpoints = False
        self.asleep = False
        self.slept: Mark | None = None
        self.woken = False
        self.lengths: deque[int] = deque(maxlen=losses.MAX_LENGTHS)
        self.idle_cleared: dict[int, tuple[Mark, IdleSave]] = {}
        self.evictions = 0
        self.ram_prompts: int | None = None
        self.rows: set[Message] = set()
        self._started: set[str] = set()
        self.shapes: set[int] = set()
        self._stamp = b""
        self._last_task = -1
        self._zero_seen = False
        self.clears_idle: bool | None = None
        self.clients = None if self._time_of is None else Clients(self._time_of)

    def feed(self, event: Event) -> None:
        """Take the next event; finished requests are appended to ``self.finished``."""
        self._earlier = len(self.finished)
        if event.row is None:
            together.feed(self, event)
            return
        if event.message == ANSWERED:  # it must not tell the build, since not every format asks for it
            if self.clients is not None:
                self.clients.answered(event)
            return
        if event.message in RESTART_MARKS:
            self._check_life(event)
        if event.row not in self.rows:
            self.first_sight(event.row)
        handler = HANDLERS.get(event.message)
        if handler is not None:
            slot = self.slot(event.slot) if event.slot >= 0 else self.chosen or self.slot(0)
            handler(self, event, slot)
        if event.message in STARTUP:
            self._start(event)

    def before_change(self) -> None:
        """Hand over what earlier events finished: what is known of the session, or of a request, is about to change."""
        if self._earlier:
            self._hand_over(self, self._earlier)
            self._earlier = 0

    def slot(self, id: int) -> SlotState:
        """Return the state of the slot with this id."""
        found = self.slots.get(id)
        if found is None:
            cold = self.session.starts_cold
            found = self.slots[id] = SlotState(id, length=0 if cold else None, positions_known=cold)
        return found

    def first_sight(self, row: Message) -> None:
        """A wording seen for the first time narrows the build."""
        self.before_change()
        session = self.session
        self.rows.add(row)
        session.seen.add(row.id)
        session.shows |= frozenset(row.shows)
        self.clears_idle = None  # what the new wording says of build and settings may change it
        self.watches_ram |= row.id in choosing.RAM_LINES
        self.shows_checkpoints |= row.id in requests.SHOWS_CHECKPOINTS
        self.makes_checkpoints |= row.id in requests.MAKES_CHECKPOINTS
        if session.build is not None or row.component in ("bare", "lib", "log", "error"):
            return
        if row.has_func or row.id in _WRAPPERS_PRINT:  # with and without a function's name, the text is the same
            return
        low, high = builds.oldest(row.first), builds.newest(row.last)
        new_low = max(filter(None, (session.build_min, low)), default=None)
        new_high = min(filter(None, (session.build_max, high)), default=None)
        if (
            new_low is None or new_high is None or new_low <= new_high
        ):  # a fork may mix wordings: keep what was consistent
            session.build_min, session.build_max = new_low, new_high
            session.build_source = "wording" if new_low or new_high else None

    # ---- lives of the server

    def _check_life(self, event: Event) -> None:
        """A start-up line after requests, or one that is printed once per life, begins a new one."""
        again = event.message == "init_slots" and "init_slots" in self._started
        if not self.asleep and (self.session.n_requests or again):
            self._restart(event, event.line)

    def _start(self, event: Event) -> None:
        self.before_change()
        if event.message in ("init_slots", "load_model"):
            self.session.starts_cold = True
            if event.message == "init_slots":
                self.asleep = False
        self._started.add(event.message)
        self.clears_idle = None
        self.startup.apply(event)

    def restarts(self, task: int, now: bytes) -> bool:
        """Whether a launch is of a new life: its clock (``now``) or its task number fell back."""
        reset = task == 0 and (self._zero_seen or self._last_task > 16)
        return (reset or self._clock_fell(now)) and self.session.n_requests > 0

    def check_restart(self, event: Event, task: int, now: bytes) -> None:
        """Open a new session, even without start-up lines, where a launch at the uptime ``now`` shows a new life."""
        if self.restarts(task, now):
            choice = self.slot(event.slot).choice
            self._restart(event, event.line if choice is None else choice.line)
            self.slot(event.slot).choice = choice
        self.launched(task, now)

    def launched(self, task: int, now: bytes) -> None:
        """Remember clock and number of a launch of this life."""
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
        return uptime_seconds(now) < uptime_seconds(before) - 1

    def _restart(self, event: Event, line: int) -> None:
        """Begin a new session at ``line``: a launch follows lines on the choice of its slot."""
        self.close_open(lost=True)
        self.session.last_line = line - 1
        self.forget()
        self._open(line)
        if event.row is not None:
            self.first_sight(event.row)

    def clear_idle(self, taken: SlotState) -> None:
        """From b8672 on, with unified KV and a RAM cache, idle slots are saved to RAM and cleared at every launch."""
        if self.clears_idle is None:
            s = self.session
            unified, kept = s.setting("kv_unified") is True, s.setting("cache_idle_slots") is not False
            self.clears_idle = unified and kept and s.at_least(8672) is True and s.setting("cache_ram_mib") != 0
        if self.clears_idle:
            for slot in self.slots.values():
                if slot is not taken and (slot.request is None or slot.released):
                    slot.cleared_thread = slot.thread
                    slot.length, slot.thread, slot.dropped, slot.spans = 0, None, [], []

    # ---- ends

    def quiet(self) -> None:
        """The log fell silent: a released request gets no more timing lines."""
        for slot in self.slots.values():
            if slot.request is not None and slot.released:
                requests.finish(self, slot)

    def give_up(self, number: int) -> None:
        """Close the request with this number: too many that started later are already finished."""
        for slot in self.slots.values():
            if slot.request is not None and slot.request.index == number:
                requests.finish(self, slot, lost=True)

    def close_open(self, lost: bool = True) -> None:
        """End of the log, or of the process: close what is still open."""
        for slot in self.slots.values():
            if slot.request is not None:
                requests.finish(self, slot, lost=lost and not slot.released)
