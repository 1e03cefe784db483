"""What the analyzer knows at this moment, slot by slot."""

from __future__ import annotations

from typing import TypeVar

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.engines.llamacpp.tracker import TaskProgress, Tracker, advance
from cachedoctor.model import (
    CacheSample,
    Finding,
    InputInfo,
    Judged,
    LiveView,
    MeasuredView,
    PrefillBatch,
    ServerView,
    Session,
    SlotView,
)
from cachedoctor.report.words.traffic_words import LLAMA

MAX_SLOTS = 256
"""Slots of one server that are shown; slots of all servers, and requests, that are remembered."""

_Place = tuple[int, int]
"""(session, slot)"""
_Part = tuple[int, str]
"""(session, engine or rank; empty where it has no name)"""
_K = TypeVar("_K")
_T = TypeVar("_T")


class Observer(Listener):
    """Remembers of each slot how far it is, and its last request."""

    patient = False

    def __init__(self) -> None:
        super().__init__()
        self._info = InputInfo("")
        self._progress: dict[_Place, TaskProgress] = {}
        self._last: dict[_Place, Judged] = {}
        self._ended: dict[int, tuple[Judged, Session]] = {}
        """Ended requests by their number: one may be judged again."""
        self._sessions: dict[int, Session] = {}
        """Sessions with measurements."""
        self._rows: dict[_Part, CacheSample | PrefillBatch] = {}

    def opened(self, index: int, info: InputInfo) -> None:
        """Take the input that is read from now on."""
        self._info = info

    def event(self, event: Event, path: str, origin: str | None, session: Session | None) -> None:
        """Take what a line shows of progress, and which server it is of."""
        if session is not None and session.engine != LLAMA:
            _put(self._sessions, session.index, session)
        if session is None or event.slot < 0:
            return
        place = session.index, event.slot
        found = advance(event, self._progress.get(place))
        if found is not None:
            _put(self._progress, place, found)

    def measured(self, row: CacheSample | PrefillBatch, session: Session) -> None:
        """Take what an engine or a rank said last."""
        name = row.engine if isinstance(row, CacheSample) else row.rank
        _put(self._rows, (session.index, name or ""), row)

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Take requests that ended."""
        for one, session in judged:
            _put(self._ended, one.request.index, (one, session))
            place = one.request.session, one.request.slot
            before = self._last.get(place)
            if before is None or before.request.index <= one.request.index:
                _put(self._last, place, one)

    def view(self, analyzer: Analyzer) -> LiveView:
        """Say how things stand."""
        measured = [MeasuredView(session, self._parts(index)) for index, session in sorted(self._latest().items())]
        servers = [self._server(tracker) for tracker in analyzer.trackers if tracker.session.seen or not measured]
        ended = [self._ended[number] for number in sorted(self._ended, reverse=True)]
        return LiveView(self._info, servers, analyzer.totals(), analyzer.standing(ended=False), measured, ended)

    def _latest(self) -> dict[int, Session]:
        """The last life of each server."""
        open_ = {
            (session.path, session.origin, session.engine): session for _, session in sorted(self._sessions.items())
        }
        return {session.index: session for session in open_.values()}

    def _parts(self, index: int) -> list[CacheSample | PrefillBatch]:
        return [row for (session, _), row in sorted(self._rows.items(), key=lambda of: of[0]) if session == index]

    def _server(self, tracker: Tracker) -> ServerView:
        session = tracker.session
        known = range(min(session.n_slots or 0, MAX_SLOTS))
        numbers = sorted({*known, *tracker.slots})[:MAX_SLOTS]
        return ServerView(session, [self._slot(session, number, tracker.slots.get(number)) for number in numbers])

    def _slot(self, session: Session, number: int, state: Slot | None) -> SlotView:
        place = session.index, number
        last = self._last.get(place)
        if state is None or state.open is None or state.released:
            idle = session.starts_cold or (state is not None and state.used)
            return SlotView(number, "idle" if idle else "unknown", last=last)
        request, progress = state.open, self._progress.get(place)
        if progress is None or progress.task != request.task:
            progress = TaskProgress(request.task)
        timed = request.processed_tokens is not None
        replies = progress.generated is not None or timed
        computes = progress.tokens is not None or progress.share is not None
        return SlotView(
            number, "reply" if replies else "prompt" if computes else "busy", request, progress.tokens,
            progress.share, progress.generated or None, last,
        )  # fmt: skip


def _put(places: dict[_K, _T], place: _K, value: _T) -> None:
    """Remember the latest; the one that was put longest ago is forgotten."""
    places.pop(place, None)
    places[place] = value
    if len(places) > MAX_SLOTS:
        del places[next(iter(places))]
