"""The servers whose logs have measurements instead of requests: lines become events, events sessions with periods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.doctor.analysis.servers import Step
from cachedoctor.doctor.faults import Faults
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.detect import ENGINES, Engine, Row, Tracker, written_by
from cachedoctor.engines.looks import Found
from cachedoctor.engines.wrapped_rows import joined
from cachedoctor.model import Segment, Session

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.listener import Listener


_WRAPPED = ("vllm", "sglang")
"""Engines whose records are longer than a terminal is wide."""


class _Server(msgspec.Struct):
    """One engine at one origin of the open input."""

    scanner: Scanner
    tracker: Tracker


class StatsServers:
    """Feeds on segments."""

    def __init__(
        self,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[Row], None],
        listener: Listener | None,
        faults: Faults,
    ) -> None:
        """Begin without an input.

        Args:
            new_session: makes one for a path and an origin.
            keep: takes every sample and batch.
            listener: hears of every line.
            faults: knows the servers that are not read any further.
        """
        self._faults = faults
        self._new_session = new_session
        self._keep = keep
        self._listener = listener
        self._path = ""
        self._servers: dict[tuple[str, str | None], _Server] = {}
        self._forks: dict[str | None, Engine] = {}
        """The fork of llama-server that writes, by origin."""
        self._asked: set[str] = set()
        """Engines that are new in the segments that were divided last, as far as a look tells."""
        self._joined: Counter[str] = Counter()
        """Rows of the open input that went on with the one before, by engine."""

    def begin(self, path: str, continues: bool) -> None:
        """Begin an input; ``continues``: it is the next rotation of the one before, the same servers go on."""
        self._path = path
        self._joined.clear()
        if not continues:
            self._servers.clear()
            self._forks.clear()
        for server in self._servers.values():
            server.tracker.continue_in(path)
            server.scanner.recognised = 0

    def mended(self, segments: list[Segment]) -> list[Segment]:
        """All segments of an excerpt, with the records joined that a terminal broke into rows."""
        return [self._mended(segment) for segment in segments]

    def _mended(self, segment: Segment) -> Segment:
        for engine in ENGINES:
            if engine.name in _WRAPPED and engine.looks.search(segment.data) is not None:
                segment, rows = joined(segment, engine.reader().catalogue)
                self._joined[engine.name] += rows
        return segment

    def divide(self, segments: list[Segment]) -> tuple[list[Segment], list[Segment]]:
        """Divide segments at the first line of a fork of llama-server: what comes before it, and the rest."""
        before: list[Segment] = []
        behind: list[Segment] = []
        self._asked = set().union(*(written_by(segment.data, self._known(segment.origin)) for segment in segments))
        for segment in segments:
            head, tail = (None, segment) if segment.origin in self._forks else self._fork(segment)
            before += [head] if head is not None else []
            behind += [tail] if tail is not None else []
        return before, behind

    def _known(self, origin: str | None) -> set[str]:
        """Engines that write at an origin already."""
        return {name for name, place in self._servers if place == origin}

    def fork(self, origin: str | None) -> str:
        """Return the fork of llama-server that writes at an origin, by its name."""
        return self._forks[origin].name

    def _fork(self, segment: Segment) -> tuple[Segment | None, Segment | None]:
        for engine in ENGINES:
            asked = engine.fork and engine.name in self._asked
            if asked and (found := engine.looks.search(segment.data)) is not None:
                self._forks[segment.origin] = engine
                return _divided(segment, found)
        return segment, None

    def steps(self, before: list[Segment], behind: list[Segment]) -> list[Iterator[Step]]:
        """Give the events of segments, divided, one by one; none where only llama-server wrote."""
        found = [
            (engine, rest)
            for segment in before
            for engine in ENGINES
            if not engine.fork and (rest := self._rest(engine, segment)) is not None
        ]
        found += [(self._forks[segment.origin], segment) for segment in behind]
        for engine, segment in sorted(found, key=lambda pair: pair[1].number(0)):
            self._server(engine, segment.origin)  # they are in the order in which they began, not in that of engines
        return [self._steps(engine, self._server(engine, segment.origin), segment) for engine, segment in found]

    def _rest(self, engine: Engine, segment: Segment) -> Segment | None:
        """The lines that are read for an engine: from the first that only it writes."""
        if (engine.name, segment.origin) in self._servers:
            return segment
        found = engine.looks.search(segment.data) if engine.name in self._asked else None
        return None if found is None else _divided(segment, found)[1]

    @property
    def active(self) -> bool:
        """Whether a session of such an engine goes on."""
        return any(server.tracker.session is not None for server in self._servers.values())

    def recognised(self) -> Counter[str]:
        """How many lines of the open input were recognised so far, by engine; those of forks are counted elsewhere."""
        found: Counter[str] = Counter()
        for (name, origin), server in self._servers.items():
            fork = self._forks.get(origin)
            if server.tracker.session is not None and (fork is None or fork.name != name):
                found[name] += server.scanner.recognised + self._joined[name]
        return found

    def _server(self, engine: Engine, origin: str | None) -> _Server:
        server = self._servers.get((engine.name, origin))
        if server is None:
            reader = engine.reader()
            tracker = reader.tracker(self._path, origin, self._new_session, self._keep)
            server = self._servers[engine.name, origin] = _Server(Scanner(reader.catalogue, reader.plan), tracker)
        return server

    def _steps(self, engine: Engine, server: _Server, segment: Segment) -> Iterator[Step]:
        tracker, known_as = server.tracker, (engine.name, segment.origin)
        take = partial(self._take, tracker, known_as)
        try:
            for event in server.scanner.scan(segment):
                yield Step(event.line, take, event)
        except Exception as error:  # one server must not end the run
            self._faults.take(known_as, error)
        if tracker.session is not None:
            tracker.session.last_line = max(tracker.session.last_line, server.scanner.last_line)

    def _take(self, tracker: Tracker, known_as: tuple[str, str | None], event: Event) -> None:
        if known_as in self._faults.servers:
            return
        try:
            tracker.feed(event)
            if self._listener is not None and tracker.session is not None:
                self._listener.event(event, self._path, known_as[1], tracker.session)
        except Exception as error:  # one server must not end the run
            self._faults.take(known_as, error)


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
