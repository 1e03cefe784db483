"""Turns events of one llama-server into sessions and finished requests; compiles its messages at the first call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue, Event
from cachedoctor.engines.catalogue.reading import LacksFieldError
from cachedoctor.engines.catalogue.scanner import Scanner, ScanPlan
from cachedoctor.engines.llamacpp import fused, lines
from cachedoctor.engines.llamacpp.client_lines import ANSWERED, Clients
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.server_run import MixedLines, ServerRun
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.engines.llamacpp.startup import RESTART_MARKS, STARTUP
from cachedoctor.model import Request, Session
from cachedoctor.model.log_lines import LogFile

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.forked import Fork


PLAN = ScanPlan(
    frozenset(lines.ON) | STARTUP,
    # printed for every batch; the first of a request says what was reused, or how long its prompt is
    once=frozenset({"seq_rm", "progress", "progress_pp"}),
    fused_groups=fused.GROUPS,
)
_BEGINNINGS = frozenset(
    {"launch", "new_prompt", "npast_posmin", "slot_select_lcp", "slot_select_lcs", "slot_select_lru"}
)
"""Lines that a request has once, at its beginning."""
LISTING_PLAN = msgspec.structs.replace(PLAN, wanted=PLAN.wanted | {ANSWERED})
"""With messages that matter only if every request is listed."""


def of_fork(plan: ScanPlan) -> ScanPlan:
    """Return the plan for lines of a fork: no line is left out, and no lines are read together."""
    return msgspec.structs.replace(plan, once=frozenset(), fused_groups=0)


class Tracker:
    """Processes the events of one origin in line order, and returns finished requests."""

    def __init__(
        self,
        files: Sequence[LogFile],
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        number: Callable[[], int],
        scanner: Scanner,
        build: int | None = None,
        time_of: Callable[[int], str | None] | None = None,
    ) -> None:
        """Begin without a line.

        Args:
            files: of the log, as they are read; the last one is open.
            origin: of the lines in them.
            new_session: makes one for a path and an origin.
            number: gives the next number of a request.
            scanner: that reads the lines.
            build: of llama.cpp, when it was given.
            time_of: wall clock of the line with this number, where its wrapper has one; left out where no request is
                listed, since then nobody asks when one began and for whom.
        """
        self._files = files
        self.origin = origin
        self.finished: list[Request] = []
        """Requests that ended, and those given before that turned out to belong to another conversation."""
        self._scanner = scanner
        self._number = number
        self._new_session = new_session
        self._build = build
        self._time_of = time_of
        self._mixed = MixedLines()
        self._fork: tuple[str, Fork] | None = None
        self._late: tuple[int, str | None] | None = None
        """Line and wall clock time of an event that is reported after it was read."""
        self._open(1)

    def _open(self, line: int) -> None:
        """Begin a run at ``line``."""
        session = self._new_session(self._files[0].path, self.origin)
        session.files = self._files
        session.first_line = session.last_line = line
        clients = None if self._time_of is None else Clients(self._when)
        self.run = ServerRun(
            session, self._build, self._number, self.finished.append, clients, self._scanner, self._mixed
        )
        if self._fork is not None:
            self.run.is_of(self._fork[0])

    def fork(self, program: str) -> Fork:
        """Read all further lines as a fork's, and return the object that processes them."""
        if self._fork is None:
            from cachedoctor.engines.llamacpp.forked import Fork  # few logs are of one

            self._fork = program, Fork(self.feed, self._feed_late, lambda: self.run, self._when)
            self.run.is_of(program)
        return self._fork[1]

    def _when(self, line: int) -> str | None:
        late = self._late
        if late is not None and late[0] == line:
            return late[1]
        return None if self._time_of is None else self._time_of(line)

    def _feed_late(self, event: Event, time: str | None) -> None:
        self._late = event.line, time
        self.feed(event)
        self._late = None

    @property
    def session(self) -> Session:
        """The current run."""
        return self.run.session

    @property
    def slots(self) -> dict[int, Slot]:
        """The slots of the run, by number."""
        return self.run.slots

    @property
    def asleep(self) -> bool:
        """Whether the server sleeps."""
        return self.run.asleep

    @property
    def quoted(self) -> int:
        """Number of prompt lines with different values of a client, which a finding mentions."""
        return self.run.quoted

    def feed(self, event: Event) -> None:
        """Take the next event; finished requests are appended to ``self.finished``."""
        if event.match is not None:
            self._feed_block(event, event.match)
            return
        if event.row is None:
            return
        if event.message == ANSWERED:  # it must not tell the build, since not every format asks for it
            lines.answered(self.run, event)
            return
        if event.row.quoted:  # nor that there is a server
            lines.read(self.run, event)
            return
        if event.message in RESTART_MARKS:
            again = event.message == "init_slots" and "init_slots" in self.run.started
            if not self.run.asleep and (self.run.worked or again):
                self._restart(event.line)
        elif event.message == "launch" and self.run.restarts(event.task, event.stamp):
            self._restart_at_launch(event.slot, event.line)
        if event.row not in self.run.rows:
            self.run.first_sight(event.row, whole=lines.is_whole(event))
        lines.read(self.run, event)

    def feed_partly(self, event: Event) -> None:
        """Process a line that may lack fields; a line without slot and task continues the request before it."""
        self.run.read_leniently()
        if event.task < 0 and event.message in _BEGINNINGS:
            self.run.end_anonymous(event.message)
        try:
            self.feed(event)
        except LacksFieldError:
            return  # what was left out is what it says

    def _feed_block(self, event: Event, match: re.Match[bytes]) -> None:
        run, groups = self.run, match.groups()
        launch = fused.launch_of(groups, event.texts)
        if launch is None:
            shape, alone = fused.shape_of(groups, len(event.texts)), len(event.texts) < 2
            known = shape in run.shapes and (alone or run.slot(int(groups[0])).serves(int(groups[1])))
            if known or self._first_met(event, shape, restarts=None):
                fused.read(self.run, event, groups)
            return
        shape, task, at, stamp = launch
        if shape in run.shapes and run.goes_on(task, stamp):
            fused.read_launch(run, event, groups, task, at)
        elif self._first_met(event, shape, restarts=int(groups[0]) if run.restarts(task, stamp) else None):
            self.run.launched(task, stamp)
            fused.read_launch(self.run, event, groups, task, at)

    def _first_met(self, event: Event, shape: fused.Shape, *, restarts: int | None) -> bool:
        """Take lines whose rows were not met yet, of two runs, or of a request that is not open.

        ``restarts``: the slot whose launch is the first of a new run. Returns whether they are still to be read at
        once, as single lines are.
        """
        self.run.shapes.add(shape)
        if len(event.texts) > 1:
            for single in self._scanner.singly(event):
                self.feed(single)
            return False
        if restarts is not None:
            self._restart_at_launch(restarts, event.line)
        for row in self._scanner.recognise_all(event.texts):
            if row not in self.run.rows:
                self.run.first_sight(row)
        return True

    def _restart(self, line: int) -> None:
        """Begin a new run at ``line``."""
        self.run.close_open()
        self.session.last_line = line - 1
        self._scanner.forget()
        self._open(line)

    def _restart_at_launch(self, slot: int, line: int) -> None:
        """Begin a new run, even without start-up lines; the choice of the slot belongs to it."""
        choice = self.run.slot(slot).choice
        self._restart(line if choice is None else choice.line)
        self.run.slot(slot).take_over(choice)

    # ---- ends

    def quiet(self) -> None:
        """Note that no lines came for a while: a released request gets no more timing lines."""
        self.run.quiet()

    def give_up(self, number: int) -> None:
        """Close the request with this number: too many that started later are already finished."""
        self.run.give_up(number)

    def close_open(self, lost: bool = True) -> None:
        """End of the log, or of the process: close what is still open."""
        if self._fork is not None:
            self._fork[1].finish()
        self.run.close_open(lost=lost)


PROGRESS = frozenset({"progress", "progress_pp", "prompt_done", "tg_progress"})
"""Lines that show only the progress of a task."""
_BATCH = "seq_rm"
"""Printed for every batch of a prompt, with what the slot holds before it."""
_TOKENS = ("n_tokens", "n_past")
"""Names of the slot's content in lines of different builds."""
_GENERATED = ("n_decoded", "n_gen")


class TaskProgress(msgspec.Struct):
    """The progress of one task; a value that its lines do not show is None."""

    task: int
    tokens: int | None = None
    """Prompt tokens that are in the slot, reused or processed."""
    share: float | None = None
    """Share of the prompt that is done, as printed."""
    generated: int | None = None
    """Tokens of the reply so far; None while the prompt is processed."""


def advance(event: Event, before: TaskProgress | None) -> TaskProgress | None:
    """The progress of the slot after ``event``; None if the event does not show it."""
    if event.message not in PROGRESS and event.message != _BATCH:
        return None
    now = before if before is not None and before.task == event.task else TaskProgress(event.task)
    fields = event.fields
    if event.message == "tg_progress":
        now.generated = next((fields[name] for name in _GENERATED if name in fields), None)
        return now
    if event.message != "progress_pp":  # there the count is of processed tokens only
        now.tokens = next((fields[name] for name in _TOKENS if name in fields), now.tokens)
    if event.message == "prompt_done":
        now.generated = 0
    share = fields.get("progress")
    now.share = share if share is not None and 0 <= share <= 1 else None  # the line may say nan
    return now


@cache
def catalogue() -> Catalogue:
    """Return the catalogue with the pattern that reads several lines at once."""
    return Catalogue(ROWS, fused.PATTERN, fused.GROUPS)


@cache
def single_lines() -> Catalogue:
    """Return the catalogue without that pattern, for listeners that need every single line."""
    return Catalogue(ROWS)


@cache
def fork_lines() -> Catalogue:
    """Return the catalogue of a fork's lines that are llama-server's, with the wordings that only the fork has."""
    from cachedoctor.engines.programs import ik_llama  # few logs are of a fork

    return Catalogue(ik_llama.LLAMA_ROWS + ROWS)


@cache
def fork_words() -> Catalogue:
    """Return the catalogue of a fork's lines in its own words."""
    from cachedoctor.engines.catalogue.logger import LoggerCatalogue
    from cachedoctor.engines.llamacpp import forked
    from cachedoctor.engines.programs import ik_llama

    return LoggerCatalogue([row for row in ik_llama.ROWS if row.id in forked.WORDS], ik_llama.PREFIX)
