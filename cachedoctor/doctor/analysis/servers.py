"""The servers that write to the open input, distinguished by origin: lines become events, and events requests.

Two containers in one compose log are two servers: ``llama-a | slot ...`` and ``llama-b | slot ...``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cachedoctor.doctor.catalogues import catalogue, single_lines
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.line_scanner import SingleScanner
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.llamacpp.progress import PROGRESS
from cachedoctor.engines.llamacpp.tracker import LISTING_PLAN, PLAN, Tracker
from cachedoctor.envelope.clock import wall_time
from cachedoctor.model import Segment, Session

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.listener import Listener

_TOGETHER = 64
"""Finished requests that are examined together."""


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
    ) -> None:
        """Begin without an input.

        Args:
            new_session: makes one for a path and an origin.
            number: gives the next number of a request.
            examine: takes the finished requests of a tracker.
            build: of llama.cpp, when the log does not say it.
            lists_requests: what is only of interest where every request is listed is read as well.
            listener: hears of every line.
        """
        self._new_session = new_session
        self._number = number
        self._examine = examine
        self._build = build
        self._lists = lists_requests
        self._plan = LISTING_PLAN if lists_requests else PLAN
        self._listener = listener
        self._path = ""
        self._scanners: dict[str | None, Scanner] = {}
        self._trackers: dict[str | None, Tracker] = {}
        self._stored: dict[int, bytes] = {}

    def begin(self, path: str, continues: bool) -> None:
        """Begin an input; ``continues``: it is the next rotation of the one before, the same servers go on."""
        self._path = path
        if not continues:
            self._trackers, self._scanners = {}, {}
        for tracker in self._trackers.values():
            tracker.path = path
        for scanner in self._scanners.values():  # what they counted for a request that goes on is still theirs
            scanner.recognised = scanner.last_line = 0

    @property
    def trackers(self) -> list[Tracker]:
        """One per server."""
        return list(self._trackers.values())

    @property
    def alone(self) -> bool:
        """Only one server wrote here; it had requests, and is awake."""
        if list(self._trackers) != [None]:
            return False
        tracker = self._trackers[None]
        return tracker.session.n_requests > 0 and not tracker.asleep

    def last_line(self, tracker: Tracker) -> int:
        """Number of the last line of the input that a server wrote."""
        return self._scanner(tracker.origin).last_line

    def read(self, segments: list[Segment]) -> int:
        """Take segments; gives how many lines of the input were recognised so far."""
        self._stored = segments[0].stored if segments else {}
        if len(segments) == 1 and self._listener is None:
            self._drive(segments[0].origin, self._scanner(segments[0].origin).scan(segments[0]))
        else:  # one by one; of several servers in one file the requests count in the order of the lines
            merged = heapq.merge(*(self._tagged(s) for s in segments), key=lambda pair: pair[1].line)
            for origin, event in merged:
                tracker = self._tracker(origin)
                tracker.feed(event)
                if tracker.finished and self._listener is None:  # who hears of the event before its request
                    self._examine(tracker)
        quoted = sum(tracker.quoted for tracker in self._trackers.values())
        return quoted + sum(scanner.recognised for scanner in self._scanners.values())

    def _tagged(self, segment: Segment) -> Iterator[tuple[str | None, Event]]:
        scanner = self._scanner(segment.origin)
        for event in scanner.scan(segment):
            # lines of others stand in between: only one by one are the requests of all counted in the order of lines
            torn = event.row is None and event.lines[-1] - event.lines[0] >= len(event.lines)
            for part in scanner.singly(event) if torn else (event,):
                yield segment.origin, part

    def _drive(self, origin: str | None, events: Iterator[Event]) -> None:
        tracker = self._trackers.get(origin)
        for event in events:
            if tracker is None:
                tracker = self._tracker(origin)
            tracker.feed(event)
            if len(tracker.finished) >= _TOGETHER:
                self._examine(tracker)

    def _scanner(self, origin: str | None) -> Scanner:
        scanner = self._scanners.get(origin)
        if scanner is None:
            listener = self._listener
            scanner = Scanner(catalogue(), self._plan) if listener is None else self._telling(origin, listener)
            self._scanners[origin] = scanner
        return scanner

    def _telling(self, origin: str | None, listener: Listener) -> Scanner:
        def tell(event: Event) -> None:
            tracker = self._trackers.get(origin)
            listener.event(event, self._path, origin, None if tracker is None else tracker.session)
            if tracker is not None:
                self._examine(tracker)

        return SingleScanner(single_lines(), self._plan, PROGRESS, tell)

    def _tracker(self, origin: str | None) -> Tracker:
        tracker = self._trackers.get(origin)
        if tracker is None:
            tracker = Tracker(
                self._path, origin, self._new_session, self._number,
                self._scanner(origin), self._build, self._time_of if self._lists else None,
            )  # fmt: skip
            self._trackers[origin] = tracker
        return tracker

    def _time_of(self, line: int) -> str | None:
        stored = self._stored.get(line)
        return None if stored is None else wall_time(stored)
