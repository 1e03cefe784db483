"""Writes down what happens as lines of ``cachedoctor.stream/1``.

A request that is seen otherwise later, and a session of which more is known, are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

import cachedoctor
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.spool import Spool
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.model import CacheSample, Finding, InputInfo, Judged, PrefillBatch, Report, Session
from cachedoctor.report.wire import stream_v1
from cachedoctor.report.wire.report_v1 import encode_request

_SERVERS = 256
"""Sessions whose written state is remembered; as many servers are distinguished in one input."""


class EventStream(Listener):
    """Lines that wait to be taken by whoever has an output."""

    def __init__(self) -> None:
        self._requests = _Changing(encode_request, self._again)
        super().__init__(self._requests)
        self._lines = [stream_v1.start(cachedoctor.__version__)]
        self._sessions: dict[int, bytes] = {}
        self._findings: set[tuple[object, ...]] = set()
        self._measured: list[tuple[CacheSample | PrefillBatch, Session]] = []
        """Rows whose event comes next."""

    def take(self) -> bytes:
        """Give the lines since the last time."""
        self._tell_rows()
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def close(self, report: Report) -> Iterator[bytes]:
        """Yield the last lines; ``report`` is that of the analyzer that was told of."""
        yield self.take()
        self._requests.settle()
        yield self.take()
        yield from stream_v1.close(report)

    def opened(self, index: int, info: InputInfo) -> None:
        """Write an input down, and once more in the end."""
        self._lines.append(stream_v1.opened(index, info))

    def measured(self, row: CacheSample | PrefillBatch, session: Session) -> None:
        """Write a sample or a batch down after the next event, which made it known."""
        self._measured.append((row, session))

    def event(self, event: Event, path: str, origin: str | None, session: Session | None) -> None:
        """Write an event down; the first one of a session after it."""
        if session is not None and session.index not in self._sessions:
            self._tell_of(session, event.line)
        self._lines.append(
            stream_v1.event(
                path, event.line, origin, None if session is None else session.index, event.slot, event.task,
                event.message, event.fields,
            )
        )  # fmt: skip
        self._tell_rows()

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Write requests down, and findings that are new."""
        for one, session in judged:
            self._tell_of(session, one.request.last_line)
            self._lines.append(stream_v1.request(self._requests.note(one)))
        for finding in findings:
            key = finding.identity
            if key not in self._findings:
                self._findings.add(key)
                self._lines.append(stream_v1.finding(finding, False))

    def _tell_rows(self) -> None:
        rows, self._measured = self._measured, []
        for row, session in rows:
            self._tell_of(session, row.line)
            self._lines.append(stream_v1.sample(row) if isinstance(row, CacheSample) else stream_v1.batch(row))

    def _tell_of(self, session: Session, line: int) -> None:
        """Write a session down, which continues after ``line``, unless all that is known of it has been said."""
        # Its own last line is that of a chunk, and a chunk may end anywhere.
        line = max(session.first_line, line)
        sums = {"last_line": 0, "n_requests": 0, "periods": [], "counters": [], "answers": []}  # they change with each
        known = stream_v1.session(msgspec.structs.replace(session, **sums))
        if self._sessions.pop(session.index, None) != known:
            self._lines.append(stream_v1.session(msgspec.structs.replace(session, last_line=line)))
        self._sessions[session.index] = known
        if len(self._sessions) > _SERVERS:
            del self._sessions[next(iter(self._sessions))]

    def _again(self, encoded: bytes) -> None:
        self._lines.append(stream_v1.request(encoded))


class _Changing(Spool):
    """Holds requests as long as they can change; none is kept that was written down as it is in the end."""

    def __init__(self, encode: Callable[[Judged], bytes], again: Callable[[bytes], None]) -> None:
        super().__init__(encode)
        self._written_as = encode
        self._again = again
        self._written: dict[int, bytes] = {}

    def note(self, judged: Judged) -> bytes:
        """Encode a request that is about to be written down."""
        encoded = self._written[judged.request.index] = self._written_as(judged)
        return encoded

    def _settle(self, settled: list[Judged], encode: Callable[[Judged], bytes]) -> None:
        """Have requests that no longer change written down once more if they are others by now."""
        for judged in settled:
            encoded = encode(judged)
            if self._written.pop(judged.request.index, None) != encoded:
                self._again(encoded)

    def settle(self) -> None:
        """Nothing changes any more."""
        self._settle([*self._open, *self._waiting.values()], self._written_as)
        self._open.clear()
        self._waiting.clear()
