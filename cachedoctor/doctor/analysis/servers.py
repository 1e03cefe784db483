"""The servers that write to one input, by origin: lines become events, events become requests."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cachedoctor.doctor.catalogues import catalogue, fork_lines, fork_words, single_lines
from cachedoctor.doctor.faults import Faults
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.scanner import Plan, Scanner, SingleScanner
from cachedoctor.engines.llamacpp.excerpt_rows import Partly
from cachedoctor.engines.llamacpp.forked import WORDS
from cachedoctor.engines.llamacpp.tracker import LISTING_PLAN, PLAN, PROGRESS, Tracker, of_fork
from cachedoctor.inputs.envelope.shapes import wall_time
from cachedoctor.model import Segment, Session
from cachedoctor.model.log_lines import LogFile
from cachedoctor.report.words.traffic_words import LLAMA

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.listener import Listener


class Step(NamedTuple):
    """An event, and who takes it."""

    line: int
    take: Callable[[Event], None]
    event: Event


def take_all(readings: list[Iterator[Step]]) -> None:
    """Have the events of several readers taken line by line; of one line in the order of the readers.

    A reader is asked for its next event when the one before was taken.
    """
    for step in heapq.merge(*readings, key=attrgetter("line")):
        step.take(step.event)


_TOGETHER = 64
"""Finished requests that are examined together."""


class _ForkScanners(msgspec.Struct):
    """Read the lines of a fork at one origin of the open input."""

    program: str
    lines: Scanner
    words: Scanner


class Servers:
    """Feeds on segments; finished requests wait in their tracker until they are examined."""

    def __init__(
        self,
        new_session: Callable[[str, str | None], Session],
        number: Callable[[], int],
        examine: Callable[[Tracker], None],
        build: int | None,
        lists_requests: bool,
        listener: Listener | None,
        faults: Faults,
    ) -> None:
        """Begin without an input.

        Args:
            new_session: makes one for a path and an origin.
            number: gives the next number of a request.
            examine: takes the finished requests of a tracker.
            build: of llama.cpp, when the log does not say it.
            lists_requests: what is only of interest where every request is listed is read as well.
            listener: hears of every line.
            faults: knows the servers that are not read any further.
        """
        self._faults = faults
        self._new_session = new_session
        self._number = number
        self._examine = examine
        self._build = build
        self._lists = lists_requests
        self._plan = LISTING_PLAN if lists_requests else PLAN
        self._listener = listener
        self._files: list[LogFile] = []
        """Of the open log, the open one last."""
        self._scanners: dict[str | None, Scanner] = {}
        self._trackers: dict[str | None, Tracker] = {}
        self._forks: dict[str | None, _ForkScanners] = {}
        self._stored: dict[int, bytes] = {}
        self._partly = 0
        """Lines of the open input that only a lenient reader understood, knew for a slot's, or joined to one before."""

    def begin(self, file: LogFile, continues: bool) -> None:
        """Begin an input; ``continues``: it is the next rotation of the one before, the same servers go on."""
        self._partly = 0
        if not continues:
            self._files = []
            self._trackers, self._scanners, self._forks = {}, {}, {}
        self._files.append(file)
        for fork in self._forks.values():
            fork.lines.recognised = fork.lines.last_line = fork.words.recognised = fork.words.last_line = 0
        for scanner in self._scanners.values():  # what they counted for a request that goes on is still theirs
            scanner.recognised = scanner.last_line = 0

    @property
    def trackers(self) -> list[Tracker]:
        """One per server."""
        return list(self._trackers.values())

    @property
    def alone(self) -> bool:
        """Only one server wrote here; it had requests, and is awake."""
        if list(self._trackers) != [None] or self._forks:
            return False
        tracker = self._trackers[None]
        return tracker.session.n_requests > 0 and not tracker.asleep

    def last_line(self, tracker: Tracker) -> int:
        """Number of the last line of the input that a server wrote."""
        fork = self._forks.get(tracker.origin)
        last = 0 if fork is None else max(fork.lines.last_line, fork.words.last_line)
        return max(last, self._scanner(tracker.origin).last_line)

    def came(self, segments: list[Segment]) -> None:
        """Learn the stored lines of all segments that are read next, whoever reads them."""
        blocks = list({id(segment.stored): segment.stored for segment in segments}.values())
        self._stored = (
            blocks[0] if len(blocks) == 1 else {line: text for block in blocks for line, text in block.items()}
        )

    def read(self, segment: Segment) -> None:
        """Take a segment of the only server that wrote to a block, with nobody listening."""
        segment = self._counted_on(segment)
        self._drive(segment.origin, self._scanner(segment.origin).scan(segment))

    def steps(self, segments: list[Segment]) -> list[Iterator[Step]]:
        """Give the events of segments one by one: of several servers the requests count in the order of the lines."""
        segments = [self._counted_on(segment) for segment in segments]
        return [self._steps(segment) for segment in segments]

    def _counted_on(self, segment: Segment) -> Segment:
        """The same, its lines counted from the first file of the log on: their numbers say what came before what."""
        return segment.behind(self._files[-1].before) if self._files[-1].before else segment

    def _behind(self, event: Event) -> Event:
        """The event of a line in the open file, counted as ``_counted_on`` does."""
        return msgspec.structs.replace(event, line=event.line + self._files[-1].before)

    def _step(self, event: Event, take: Callable[[Event], None]) -> Step:
        return Step(event.line - self._files[-1].before, take, event)

    def mended(self, segments: list[Segment], *, fork: bool = False) -> tuple[list[Segment], list[Iterator[Step]]]:
        """All segments of an excerpt as the scanner reads them, and the events that only a lenient reader gives.

        ``fork``: they are of one.
        """
        from cachedoctor.engines.llamacpp.excerpts import ExcerptReader

        reader = ExcerptReader(fork_lines(), of_fork(self._plan)) if fork else ExcerptReader(catalogue(), self._plan)
        take = self._take_of_fork if fork else self._take
        excerpts = [reader.read(segment) for segment in segments]
        for excerpt in excerpts:
            if excerpt.mended:
                self._tracker(excerpt.segment.origin).run.read_leniently()
            self._partly += len(excerpt.events) + excerpt.unknown + excerpt.joined
        partly = [
            iter([self._step(self._behind(event), partial(take, excerpt.segment.origin)) for event in excerpt.events])
            for excerpt in excerpts
        ]
        return [excerpt.segment for excerpt in excerpts], partly if any(e.events for e in excerpts) else []

    def forked(self, segments: list[tuple[str, Segment]], *, excerpt: bool) -> list[Iterator[Step]]:
        """Give the events of lines of forks, one by one.

        Args:
            segments: each with the name of the program.
            excerpt: they are all of it.
        """
        for program, segment in segments:
            if segment.origin not in self._forks:
                lines, words = Scanner(fork_lines(), of_fork(self._plan)), Scanner(fork_words(), Plan(WORDS))
                self._forks[segment.origin] = _ForkScanners(program, lines, words)
        texts = [segment for _, segment in segments]
        mended, partly = self.mended(texts, fork=True) if excerpt else (texts, [])
        found = list(partly)
        for segment, read in zip(texts, mended, strict=True):
            scanners = self._forks[segment.origin]
            found.append(self._steps_of_fork(segment.origin, scanners.words.scan(self._counted_on(segment))))
            found.append(self._steps_of_fork(segment.origin, scanners.lines.scan(self._counted_on(read))))
        return found

    def _steps_of_fork(self, origin: str | None, events: Iterator[Event]) -> Iterator[Step]:
        take = partial(self._take_of_fork, origin)
        try:
            for event in events:
                yield self._step(event, take)
        except Exception as error:  # one server must not end the run
            self._give_up(origin, error)

    def _take_of_fork(self, origin: str | None, event: Event) -> None:
        if (LLAMA, origin) in self._faults.servers:
            return
        try:
            tracker = self._tracker(origin)
            fork = tracker.fork(self._forks[origin].program)
            if event.message in WORDS and event.slot < 0:
                fork.word(event)
            else:
                fork.line(event, tracker.feed_partly if isinstance(event.fields, Partly) else None)
            if tracker.finished:
                self._examine(tracker)
        except Exception as error:  # one server must not end the run
            self._give_up(origin, error)

    def recognised_of_forks(self) -> Counter[str]:
        """How many lines of forks were recognised so far, by program."""
        found: Counter[str] = Counter()
        for fork in self._forks.values():
            found[fork.program] += fork.lines.recognised + fork.words.recognised
        return found

    @property
    def recognised(self) -> int:
        """How many lines of the input were recognised so far."""
        quoted = sum(tracker.quoted for tracker in self._trackers.values())
        return self._partly + quoted + sum(scanner.recognised for scanner in self._scanners.values())

    def _steps(self, segment: Segment) -> Iterator[Step]:
        origin = segment.origin
        scanner = self._scanner(origin)
        take, tell = partial(self._take, origin), partial(self._tell, origin)
        try:
            for event in scanner.scan(segment):
                if isinstance(scanner, SingleScanner) and scanner.is_extra:
                    yield self._step(event, tell)
                    continue
                # lines of others stand in between: only one by one are the requests of all counted in their order
                torn = event.row is None and event.lines[-1] - event.lines[0] >= len(event.lines)
                for part in scanner.singly(event) if torn else (event,):
                    yield self._step(part, take)
        except Exception as error:  # one server must not end the run
            self._give_up(origin, error)

    def _take(self, origin: str | None, event: Event) -> None:
        if (LLAMA, origin) in self._faults.servers:
            return
        try:
            tracker = self._tracker(origin)
            if isinstance(event.fields, Partly):
                tracker.feed_partly(event)
            else:
                tracker.feed(event)
            self._tell(origin, event)  # who listens hears of the event before its request
            if tracker.finished:
                self._examine(tracker)
        except Exception as error:  # one server must not end the run
            self._give_up(origin, error)

    def _tell(self, origin: str | None, event: Event) -> None:
        if self._listener is not None:
            tracker = self._trackers.get(origin)
            if before := self._files[-1].before:
                event = msgspec.structs.replace(event, line=event.line - before)
            self._listener.event(event, self._files[-1].path, origin, None if tracker is None else tracker.session)

    def each(self, do: Callable[[Tracker], None]) -> None:
        """Do something with the tracker of every server that is still read."""
        for origin, tracker in list(self._trackers.items()):
            if (LLAMA, origin) in self._faults.servers:
                continue
            try:
                do(tracker)
            except Exception as error:  # one server must not end the run
                self._give_up(origin, error)

    def _give_up(self, origin: str | None, error: Exception) -> None:
        """Read a server no further; the requests that ended before are judged."""
        self._faults.take((LLAMA, origin), error)
        tracker = self._trackers.get(origin)
        if tracker is None:
            return
        try:
            self._examine(tracker)
        except Exception as again:
            self._faults.take((LLAMA, origin), again)

    def _drive(self, origin: str | None, events: Iterator[Event]) -> None:
        if (LLAMA, origin) in self._faults.servers:
            return
        tracker = self._trackers.get(origin)
        try:
            for event in events:
                if tracker is None:
                    tracker = self._tracker(origin)
                tracker.feed(event)
                if len(tracker.finished) >= _TOGETHER:
                    self._examine(tracker)
        except Exception as error:  # one server must not end the run
            self._give_up(origin, error)

    def _scanner(self, origin: str | None) -> Scanner:
        scanner = self._scanners.get(origin)
        if scanner is None:
            if self._listener is None:
                scanner = Scanner(catalogue(), self._plan)
            else:
                scanner = SingleScanner(single_lines(), self._plan, PROGRESS)
            self._scanners[origin] = scanner
        return scanner

    def _tracker(self, origin: str | None) -> Tracker:
        tracker = self._trackers.get(origin)
        if tracker is None:
            tracker = Tracker(
                self._files, origin, self._new_session, self._number,
                self._scanner(origin), self._build, self._time_of if self._lists else None,
            )  # fmt: skip
            self._trackers[origin] = tracker
        return tracker

    def _time_of(self, line: int) -> str | None:
        stored = self._stored.get(line - self._files[-1].before)
        return None if stored is None else wall_time(stored)
