"""The servers that write to one log, by engine and origin: lines become events, events requests or measurements."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cachedoctor.doctor.faults import Faults, Server
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.reading import Partly
from cachedoctor.engines.catalogue.scanner import Scanner, ScanPlan, SingleScanner
from cachedoctor.engines.detect import (
    ERROR_LINE,
    EVERYWHERE,
    PACKAGES,
    certain_literals,
    engines,
    strange_lines,
    written_by,
)
from cachedoctor.engines.engine_record import Engine, Found, Row
from cachedoctor.engines.engine_record import Tracker as StatsTracker
from cachedoctor.engines.llamacpp.tracker import (
    LISTING_PLAN,
    PLAN,
    PROGRESS,
    Tracker,
    catalogue,
    fork_lines,
    fork_words,
    of_fork,
    single_lines,
)
from cachedoctor.inputs.envelope.shapes import wall_time
from cachedoctor.model import Segment, Session
from cachedoctor.model.log_lines import LogFile
from cachedoctor.report.words.traffic_words import LLAMA

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.listener import Listener
    from cachedoctor.engines.sentences import CertainLine

_T = TypeVar("_T")
_Feed = Callable[[Event], None]
_CERTAIN = 1000
"""Lines kept that are certain by themselves."""
_START = 2000
"""Lines in which a start-up ends."""
_TOGETHER = 64
"""Finished requests that are examined together."""


class _ServerStep(msgspec.Struct, frozen=True):
    """An event, and the function that takes it."""

    line: int
    take: _Feed
    event: Event


class _Stats(msgspec.Struct):
    """An engine that logs statistics, at one origin of the open log."""

    scanner: Scanner
    tracker: StatsTracker

    def reach(self) -> None:
        """Note how far its session was read."""
        session = self.tracker.session
        if session is not None:
            session.last_line = max(session.last_line, self.scanner.last_line)


class _Fork(msgspec.Struct):
    """A fork of llama-server, at one origin of the open log."""

    engine: Engine
    lines: Scanner
    words: Scanner


class Servers:
    """Reads segments; finished requests wait in their tracker until they are examined."""

    def __init__(
        self,
        begin_llama: Callable[[str, str | None], Session],
        begin_stats: Callable[[str, str | None], Session],
        number: Callable[[], int],
        examine: Callable[[Tracker], None],
        keep: Callable[[Row], None],
        build: int | None,
        lists_requests: bool,
        listener: Listener | None,
        faults: Faults,
    ) -> None:
        """Begin without an input.

        Args:
            begin_llama: makes a session of llama-server for a path and an origin.
            begin_stats: makes a session of an engine that logs statistics.
            number: gives the next number of a request.
            examine: takes the finished requests of a tracker.
            keep: takes every sample and batch.
            build: of llama.cpp, when the log does not show it.
            lists_requests: lines that matter only where every request is listed are read as well.
            listener: is called for every line.
            faults: the servers that are not read any further.
        """
        self._faults = faults
        self._begin_llama = begin_llama
        self._begin_stats = begin_stats
        self._number = number
        self._examine = examine
        self._keep = keep
        self._build = build
        self._lists = lists_requests
        self._plan = LISTING_PLAN if lists_requests else PLAN
        self._listener = listener
        self._files: list[LogFile] = []
        """Files of the open log, the open one last."""
        self._scanners: dict[str | None, Scanner] = {}
        self._trackers: dict[str | None, Tracker] = {}
        self._forks: dict[str | None, _Fork] = {}
        self._stats: dict[Server, _Stats] = {}
        self._stored: dict[int, bytes] = {}
        self._partly = 0
        """Lines of the open input that only a lenient reader understood, took for a slot's, or joined to an earlier
        one."""
        self._joined: Counter[str] = Counter()
        """Rows of the open input that continued the one before, by engine."""
        self._certain: Counter[str] = Counter()
        """Lines of the open input that are certain by themselves, by engine."""
        self.certain: list[tuple[str | None, CertainLine]] = []
        """The same with their origins, numbered from the first file of the log on."""
        self._everywhere = False
        """Lines that begin like those of llama-server are searched for them, too, because the first lines had some."""

    def begin(self, file: LogFile, continues: bool) -> None:
        """Begin an input; ``continues``: it is the next rotation of the one before, the same servers continue."""
        self._partly = 0
        self._joined.clear()
        self._certain.clear()
        self._everywhere = False
        if not continues:
            self._files = []
            self._trackers, self._scanners, self._forks, self._stats = {}, {}, {}, {}
        self._files.append(file)
        forked = [scanner for fork in self._forks.values() for scanner in (fork.lines, fork.words)]
        for scanner in (*self._scanners.values(), *forked):  # what they counted for an open request stays valid
            scanner.recognised = scanner.last_line = 0
        for server in self._stats.values():
            server.tracker.continue_in(file.path)
            server.scanner.recognised = 0

    # ---- what was read

    @property
    def trackers(self) -> list[Tracker]:
        """One per llama-server."""
        return list(self._trackers.values())

    @property
    def paths(self) -> list[str]:
        """Files of the open log, the open one last."""
        return [file.path for file in self._files]

    @property
    def alone(self) -> bool:
        """True if a single llama-server wrote here, which had requests and is awake."""
        if list(self._trackers) != [None] or self._forks or any(one.tracker.session for one in self._stats.values()):
            return False
        tracker = self._trackers[None]
        return tracker.session.n_requests > 0 and not tracker.asleep

    def last_line(self, tracker: Tracker) -> int:
        """Number of the last line of the input that a server wrote."""
        fork = self._forks.get(tracker.origin)
        last = 0 if fork is None else max(fork.lines.last_line, fork.words.last_line)
        return max(last, self._scanner(tracker.origin).last_line)

    def recognised(self) -> Counter[str]:
        """Count the recognised lines of the open input by engine."""
        found: Counter[str] = Counter()
        for (name, origin), server in self._stats.items():
            fork = self._forks.get(origin)
            if server.tracker.session is not None and (fork is None or fork.engine.name != name):
                found[name] += server.scanner.recognised + self._joined[name]
        quoted = sum(tracker.quoted for tracker in self._trackers.values())
        found[LLAMA] = self._partly + quoted + sum(scanner.recognised for scanner in self._scanners.values())
        for fork in self._forks.values():
            found[fork.engine.name] += fork.lines.recognised + fork.words.recognised
        return found + self._certain

    def writer(self, found: Counter[str]) -> str | None:
        """Return the engine that wrote most of the recognised lines; its library's lines are not llama-server's."""
        if len(found) > 1 and not any(tracker.session.n_requests for tracker in self._trackers.values()):
            found = found - Counter({LLAMA: found[LLAMA]})
        return found.most_common(1)[0][0] if found.total() else None

    def each(self, do: Callable[[Tracker], None]) -> None:
        """Call ``do`` for the tracker of every llama-server that is still read."""
        for origin, tracker in list(self._trackers.items()):
            self._guard((LLAMA, origin), do, tracker)

    # ---- reading

    def read(self, segments: list[Segment], *, excerpt: bool = False) -> None:
        """Read segments, line by line in their order where several servers wrote; ``excerpt``: they are all of it."""
        blocks = list({id(segment.stored): segment.stored for segment in segments}.values())
        self._stored = (
            blocks[0] if len(blocks) == 1 else {line: text for block in blocks for line, text in block.items()}
        )
        if excerpt:
            segments = [self._unwrapped(segment) for segment in segments]
            for segment in segments:
                self._read_errors(segment)
        new: set[str] = set()
        for segment in segments:
            known = self._known(segment.origin)
            strange = b"" if segment.is_plain else strange_lines(segment.data, known)
            new |= written_by(strange, known)
            self._read_sentences(segment, strange)
        before, behind = self._divide(segments, new)
        before, partly = self._mended(before) if excerpt else (before, [])
        measured, forks = self._measured(before, behind, new), self._read_forks(behind, excerpt)
        quiet = not forks and not partly and self._listener is None
        if quiet and not measured and len(before) == 1:
            self._guard((LLAMA, before[0].origin), self._drive, before[0])
            return
        alone = [self._read_llama(self._counted_on(segment)) for segment in before]
        if quiet and len(measured) == 1:
            alone = list(filter(None, map(_begun, alone)))
            if not alone:
                self._drive_stats(*measured[0])
                return
        others = [self._steps_of_stats(engine, segment) for engine, segment in measured]
        for step in heapq.merge(*alone, *partly, *others, *forks, key=attrgetter("line")):
            step.take(step.event)

    def _read_sentences(self, segment: Segment, strange: bytes) -> None:
        """Keep lines that are certain by themselves, for the server that they are about."""
        data = segment.data if self._everywhere else _first_lines(segment)
        literals = certain_literals(data, strange)
        if not literals:
            return
        from cachedoctor.engines import sentences

        self._everywhere |= not set(literals).isdisjoint(EVERYWHERE)
        for index, row, found, text in sentences.read(segment.data, literals):
            certain = sentences.certain_line(row, found, self._number_of(segment, index), text)
            if certain is not None:
                self._keep_certain(segment.origin, certain)

    def _read_errors(self, segment: Segment) -> None:
        """Keep the error lines of an excerpt that no reader knows."""
        if ERROR_LINE.search(segment.data) is None:
            return
        from cachedoctor.engines.sentences import unknown_error, unknown_errors

        for index, engine, text in unknown_errors(segment.data):
            self._keep_certain(segment.origin, unknown_error(engine, self._number_of(segment, index), text))

    def _number_of(self, segment: Segment, index: int) -> int:
        return segment.number(index) + self._files[-1].before

    def _keep_certain(self, origin: str | None, certain: CertainLine) -> None:
        if certain.engine:
            self._certain[certain.engine] += 1
        if certain.row.incident is not None and len(self.certain) < _CERTAIN:
            self.certain.append((origin, certain))

    def _unwrapped(self, segment: Segment) -> Segment:
        """Join the records of a segment that a terminal broke into rows."""
        for engine in PACKAGES:
            if engine.wrapped and engine.looks.search(segment.data) is not None:
                from cachedoctor.engines.wrapped_rows import joined

                segment, rows = joined(segment, engine.reader().catalogue)
                self._joined[engine.name] += rows
        return segment

    def _known(self, origin: str | None) -> set[str]:
        """Engines that write at an origin already."""
        return {name for name, place in self._stats if place == origin}

    def _divide(self, segments: list[Segment], new: set[str]) -> tuple[list[Segment], list[Segment]]:
        """Divide segments at the first line of a fork of llama-server: what comes before it, and the rest."""
        before: list[Segment] = []
        behind: list[Segment] = []
        for segment in segments:
            head, tail = (None, segment) if segment.origin in self._forks else self._find_fork(segment, new)
            before += [head] if head is not None else []
            behind += [tail] if tail is not None else []
        return before, behind

    def _find_fork(self, segment: Segment, new: set[str]) -> tuple[Segment | None, Segment | None]:
        for engine in engines() if new else ():
            if engine.fork and engine.name in new and (found := engine.looks.search(segment.data)) is not None:
                from cachedoctor.engines.llamacpp.forked import WORDS  # few logs are of one

                lines, words = Scanner(fork_lines(), of_fork(self._plan)), Scanner(fork_words(), ScanPlan(WORDS))
                self._forks[segment.origin] = _Fork(engine, lines, words)
                return _divided(segment, found)
        return segment, None

    def _counted_on(self, segment: Segment) -> Segment:
        """The same, its lines counted from the first file of the log on: their numbers say what came before what."""
        return segment.behind(self._files[-1].before) if self._files[-1].before else segment

    def _mended(
        self, segments: list[Segment], *, fork: bool = False
    ) -> tuple[list[Segment], list[Iterator[_ServerStep]]]:
        """All segments of an excerpt as the scanner reads them, and the events that only a lenient reader gives."""
        from cachedoctor.engines.llamacpp.excerpts import ExcerptReader

        reader = ExcerptReader(fork_lines(), of_fork(self._plan)) if fork else ExcerptReader(catalogue(), self._plan)
        excerpts = [reader.read(segment) for segment in segments]
        partly: list[Iterator[_ServerStep]] = []
        for excerpt in excerpts:
            origin = excerpt.segment.origin
            if excerpt.mended:
                self._tracker(origin).run.read_leniently()
            self._partly += len(excerpt.events) + excerpt.unknown + excerpt.joined
            take = self._taking((LLAMA, origin), partial(self._feed_fork if fork else self._feed, origin))
            before = self._files[-1].before
            events = [msgspec.structs.replace(event, line=event.line + before) for event in excerpt.events]
            partly.append(self._steps((LLAMA, origin), events, take, before))
        return [excerpt.segment for excerpt in excerpts], partly if any(e.events for e in excerpts) else []

    def _measured(self, before: list[Segment], behind: list[Segment], new: set[str]) -> list[tuple[Engine, Segment]]:
        """Give the lines that are read for engines that log statistics; none where only llama-server wrote."""
        asked = engines() if new or self._stats else ()  # else programs need not be imported
        found = [
            (engine, rest)
            for segment in before
            for engine in asked
            if not engine.fork and (rest := self._rest(engine, segment, new)) is not None
        ]
        found += [(self._forks[segment.origin].engine, segment) for segment in behind]
        for engine, segment in sorted(found, key=lambda pair: pair[1].number(0)):
            self._stats_of(engine, segment.origin)  # they are in the order in which they began, not in that of engines
        return found

    def _rest(self, engine: Engine, segment: Segment, new: set[str]) -> Segment | None:
        """The lines that are read for an engine: from the first that only it writes."""
        if (engine.name, segment.origin) in self._stats:
            return segment
        found = engine.looks.search(segment.data) if engine.name in new else None
        return None if found is None else _divided(segment, found)[1]

    def _steps_of_stats(self, engine: Engine, segment: Segment) -> Iterator[_ServerStep]:
        server, key = self._stats_of(engine, segment.origin), (engine.name, segment.origin)
        take = self._taking(key, partial(self._feed_stats, server.tracker, segment.origin))
        yield from self._steps(key, server.scanner.scan(segment), take)
        server.reach()

    def _read_forks(self, segments: list[Segment], excerpt: bool) -> list[Iterator[_ServerStep]]:
        """Read the lines of forks, for their requests."""
        mended, found = self._mended(segments, fork=True) if excerpt and segments else (segments, [])
        for segment, read in zip(segments, mended, strict=True):
            origin, fork, before = segment.origin, self._forks[segment.origin], self._files[-1].before
            take = self._taking((LLAMA, origin), partial(self._feed_fork, origin))
            for scanner, part in ((fork.words, segment), (fork.lines, read)):
                found.append(self._steps((LLAMA, origin), scanner.scan(self._counted_on(part)), take, before))
        return found

    def _read_llama(self, segment: Segment) -> Iterator[_ServerStep]:
        origin, before = segment.origin, self._files[-1].before
        scanner, tell = self._scanner(origin), partial(self._tell, origin)
        take = self._taking((LLAMA, origin), partial(self._feed, origin))
        try:
            for event in scanner.scan(segment):
                if isinstance(scanner, SingleScanner) and scanner.is_extra:
                    yield _ServerStep(event.line - before, tell, event)
                    continue
                # lines of others are in between: only one by one are the requests of all counted in their order
                torn = event.row is None and event.lines
                for part in scanner.singly(event) if torn else (event,):
                    yield _ServerStep(part.line - before, take, part)
        except Exception as error:  # one server must not end the run
            self._give_up((LLAMA, origin), error)

    def _steps(self, server: Server, events: Iterable[Event], take: _Feed, before: int = 0) -> Iterator[_ServerStep]:
        """Give the events of a server one by one; ``before``: lines of the log before its open file."""
        try:
            for event in events:
                yield _ServerStep(event.line - before, take, event)
        except Exception as error:  # one server must not end the run
            self._give_up(server, error)

    def _taking(self, server: Server, feed: _Feed) -> _Feed:
        return partial(self._guard, server, feed)

    def _guard(self, server: Server, act: Callable[[_T], None], subject: _T) -> None:
        """Act for a server that is still read; what fails there ends its reading, and not the run."""
        if server in self._faults.servers:
            return
        try:
            act(subject)
        except Exception as error:
            self._give_up(server, error)

    def _give_up(self, server: Server, error: Exception) -> None:
        """Read a server no further; the requests that ended before are examined."""
        self._faults.take(server, error)
        engine, origin = server
        tracker = self._trackers.get(origin) if engine == LLAMA else None
        if tracker is None:
            return
        try:
            self._examine(tracker)
        except Exception as again:
            self._faults.take(server, again)

    def _drive_stats(self, engine: Engine, segment: Segment) -> None:
        """Feed the only lines that anybody wrote to a block, those of one engine, with no listener."""
        server, key = self._stats_of(engine, segment.origin), (engine.name, segment.origin)
        try:
            for event in server.scanner.scan(segment):
                self._guard(key, server.tracker.feed, event)
        except Exception as error:  # one server must not end the run
            self._give_up(key, error)
        server.reach()

    def _drive(self, segment: Segment) -> None:
        """Feed a segment of the only server that wrote to a block, with no listener."""
        segment = self._counted_on(segment)
        tracker = self._trackers.get(segment.origin)
        for event in self._scanner(segment.origin).scan(segment):
            if tracker is None:
                tracker = self._tracker(segment.origin)
            tracker.feed(event)
            if len(tracker.finished) >= _TOGETHER:
                self._examine(tracker)

    def _feed(self, origin: str | None, event: Event) -> None:
        tracker = self._tracker(origin)
        if isinstance(event.fields, Partly):
            tracker.feed_partly(event)
        else:
            tracker.feed(event)
        self._tell(origin, event)  # the listener gets the event before its request
        if tracker.finished:
            self._examine(tracker)

    def _feed_fork(self, origin: str | None, event: Event) -> None:
        tracker = self._tracker(origin)
        fork = tracker.fork(self._forks[origin].engine.name)
        fork.take(event, tracker.feed_partly if isinstance(event.fields, Partly) else None)
        if tracker.finished:
            self._examine(tracker)

    def _feed_stats(self, tracker: StatsTracker, origin: str | None, event: Event) -> None:
        tracker.feed(event)
        if self._listener is not None and tracker.session is not None:
            self._listener.event(event, self._files[-1].path, origin, tracker.session)

    def _tell(self, origin: str | None, event: Event) -> None:
        if self._listener is not None:
            tracker = self._trackers.get(origin)
            if before := self._files[-1].before:
                event = msgspec.structs.replace(event, line=event.line - before)
            self._listener.event(event, self._files[-1].path, origin, None if tracker is None else tracker.session)

    # ---- one per origin

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
                self._files, origin, self._begin_llama, self._number,
                self._scanner(origin), self._build, self._time_of if self._lists else None,
            )  # fmt: skip
            self._trackers[origin] = tracker
        return tracker

    def _stats_of(self, engine: Engine, origin: str | None) -> _Stats:
        server = self._stats.get((engine.name, origin))
        if server is None:
            reader = engine.reader()
            tracker = reader.tracker(self._files[-1].path, origin, self._begin_stats, self._keep)
            plan = reader.plan if self._listener is None else msgspec.structs.replace(reader.plan, runs={})
            server = self._stats[engine.name, origin] = _Stats(Scanner(reader.catalogue, plan), tracker)
        return server

    def _time_of(self, line: int) -> str | None:
        if not self._stored:
            return None
        stored = self._stored.get(line - self._files[-1].before)
        return None if stored is None else wall_time(stored)


def _begun(steps: Iterator[_ServerStep]) -> Iterator[_ServerStep] | None:
    """The same steps; None where there are none."""
    first = next(steps, None)
    return None if first is None else chain((first,), steps)


def _first_lines(segment: Segment) -> bytes:
    """The lines of a segment that are among the first of its input, where a start-up prints what is on."""
    left, data = _START - segment.number(0), segment.data
    if left <= 0:
        return b""
    rest = data.split(b"\n", left)[left:]
    return data[: len(data) - len(rest[0])] if rest else data


def _divided(segment: Segment, found: Found) -> tuple[Segment | None, Segment]:
    """Cut a segment before the line in which something was found."""
    at = segment.data.rfind(b"\n", 0, found.start()) + 1
    if not at:
        return None, segment
    lines, numbers = segment.data.count(b"\n", 0, at), segment.numbers
    head = msgspec.structs.replace(segment, data=segment.data[:at], numbers=numbers and numbers[:lines])
    tail = msgspec.structs.replace(
        segment, data=segment.data[at:], first=segment.number(lines), numbers=numbers and numbers[lines:]
    )
    return head, tail
