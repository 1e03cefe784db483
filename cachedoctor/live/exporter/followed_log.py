"""One followed log: its counts, kept in a state file between runs."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.inputs.sources.base import IDLE_SECONDS, SourceError
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.inputs.sources.follow import FollowSource
from cachedoctor.inputs.sources.stdin import begins_a_line
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.live.exporter import request_counts
from cachedoctor.live.exporter.log_places import FollowedPath, before
from cachedoctor.live.exporter.request_counts import Counts, LabelledCount, LabelValues, RequestCounts
from cachedoctor.model import CacheDoctorError, Finding, InputInfo

_VERSION = 1
_DIGEST = 16
"""Bytes of the digest of a file's beginning: enough that two files do not match by chance."""


class ReadFile(msgspec.Struct, frozen=True):
    """The beginning of a file, up to where it was read."""

    size: int
    """Bytes, unpacked, as UTF-8."""
    digest: str


class SavedLog(msgspec.Struct, frozen=True):
    """A log at a moment."""

    path: str
    """Path in the form of ``Place.key``."""
    files: list[ReadFile] = []
    """The log and its rotations, as far as they were read; the last one is the file being read at that time."""
    quiet: bool = False
    """It had fallen silent there."""
    counts: list[tuple[LabelledCount, int, int]] = []
    """The counts, and the values exported: an exported counter never decreases."""
    gone: bool = False
    """The log was missing so long that its counters are no longer exported; if it returns, they continue here."""


class SavedState(msgspec.Struct, frozen=True):
    """All that a run leaves to the next."""

    version: int = _VERSION
    labels: dict[str, list[str]] = {}
    """Values of labels, which are bounded in number."""
    logs: list[SavedLog] = []


class FileBeginning:
    """The first bytes of one file, as they are read."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.size += len(chunk)
        self._digest.update(chunk)

    def read(self) -> ReadFile:
        """Return what was read so far."""
        return ReadFile(self.size, self._digest.hexdigest())


def encoded(state: SavedState) -> bytes:
    """Return the bytes of the file."""
    return msgspec.json.encode(state)


def decoded(path: str, content: bytes) -> SavedState:
    """Parse such a file; raises ``CacheDoctorError`` if it is not one."""
    try:
        state = msgspec.json.decode(content, type=SavedState)
    except msgspec.MsgspecError as fault:
        raise CacheDoctorError(
            f"{path}: is not an exporter state file ({fault})", "delete the state file, or give another file"
        ) from fault
    if state.version != _VERSION:
        what = f"{path}: is a state file of another exporter version ({state.version})"
        raise CacheDoctorError(what, "delete the state file, or give another file")
    return state


FILES = 64
"""Rotations of a log that are remembered."""
_ATTEMPTS = 20
"""Times that reading begins again because the log was rotated meanwhile."""
_TORN = 4096
"""Bytes kept from the end of a file whose last line is unfinished, to decide whether the next file starts a new
line."""

Begin = Callable[[Listener], Analyzer]


class FollowedLog:
    """A log that is read step by step; its counts are available between two steps."""

    def __init__(self, place: FollowedPath, begin: Begin, values: LabelValues, saved: SavedLog | None = None) -> None:
        """``begin`` makes an analyzer; ``saved``: what the last run saved about this log."""
        self.place = place
        self._begin = begin
        self._values = values
        self._saved = saved or SavedLog(place.key)
        self._shown: Counts = Counter({series: shown for series, _, shown in self._saved.counts})
        self._steps: Iterator[bool] | None = None
        self._reached: float | None = None
        """Time at which the end of the log was reached."""
        self._anew()

    def step(self) -> bool:
        """Read on a little; returns whether there was something to read.

        After a ``SourceError`` it may be called again.
        """
        if self._steps is None:
            self._steps = self._read()
        try:
            return next(self._steps)
        except Exception:
            self._steps, self._saved, self._reached = None, self.saved(), None
            raise

    def _anew(self) -> None:
        """Start again at the first byte, with the previous counts."""
        self._counts = RequestCounts(self.place.name, self._values)
        self._analyzer = self._begin(self._counts)
        self._info: InputInfo = self._analyzer.open(self.place.path)
        self._files: list[FileBeginning] = []
        self._marks = list(self._saved.files)
        self._base: Counts = Counter({series: counted for series, counted, _ in self._saved.counts})
        self._zero: Counts = Counter()
        """The counts at the position where the last run stopped."""
        self._torn = b""
        """The last text read of a rotation whose last line lacks a newline."""
        self._heard, self._quiet, self._reached = time.monotonic(), False, None

    def _read(self) -> Iterator[bool]:
        """Yield at each step whether there was something to read."""
        for _ in range(_ATTEMPTS):
            self._anew()
            listed = before(self.place.path)
            pieces = FollowSource(self.place.path, waits=False).pieces()
            first = next(pieces)  # it is open from here on
            if listed != before(self.place.path):
                continue
            older = listed[:-1]
            yield from self._rotations([path for path, _ in older])
            # Rotated while the older ones were read: one of them may have been another file by then.
            if older == before(self.place.path)[: len(older)]:
                yield from self._followed(first, pieces)
        raise SourceError(
            f"{self.place.name}: is rotated faster than it can be read", "rotate the log at a larger size"
        )

    def _rotations(self, paths: list[str]) -> Iterator[bool]:
        for path in paths:
            self._next_file()
            tail = b""
            for chunk in FileSource(path, MAX_BYTES).chunks():
                chunk = chunk if self._files[-1].size else chunk.lstrip(b"\0")  # a log that was cut has a hole
                self._take(chunk)
                tail = (tail + chunk)[-_TORN:]
                yield True
            self._torn = b"" if tail.endswith(b"\n") else tail

    def _followed(self, first: tuple[int | None, bytes], pieces: Iterator[tuple[int | None, bytes]]) -> Iterator[bool]:
        opened = -1
        for number, chunk in _behind(first, pieces):
            if number is None:
                self._analyzer.feed(chunk)
            elif chunk:
                if number != opened:
                    self._next_file()
                    opened = number
                self._take(chunk)
            else:
                self._rest()
            yield bool(chunk)

    def _next_file(self) -> None:
        self._files = [*self._files[1 - FILES :], FileBeginning()]

    def _take(self, chunk: bytes) -> None:
        """Take bytes of the current file."""
        self._heard, self._quiet = time.monotonic(), False
        file = self._files[-1]
        if self._torn and chunk:
            if begins_a_line(chunk, self._torn):
                self._analyzer.feed(b"\n")
            self._torn = b""
        while chunk:
            stops = (mark.size - file.size for mark in self._marks if mark.size > file.size)
            part = chunk[: min(stops, default=len(chunk))]
            chunk = chunk[len(part) :]
            file.add(part)
            self._analyzer.feed(part)
            if any(mark.size == file.size for mark in self._marks):
                self._begin_counting(file.read())

    def _begin_counting(self, here: ReadFile) -> None:
        """Start counting here, where the last run stopped reading."""
        if here not in self._marks:
            return
        if self._saved.quiet and here == self._marks[-1]:
            self._analyzer.idle()
        del self._marks[: self._marks.index(here) + 1]
        self._zero = self._counted(self._counts.everything())

    def _rest(self) -> None:
        """Handle the end of the log: there is nothing new."""
        self._marks = []  # the rest is new
        now = time.monotonic()
        if not self._quiet and (self._reached is None or now - self._heard >= IDLE_SECONDS):
            self._analyzer.idle()
            self._quiet = True
        if self._reached is None:
            self._reached = now

    @property
    def is_current(self) -> bool:
        """Whether it was read to its end, and what was read by then is counted: before, a counter would be too low."""
        return self._reached is not None and time.monotonic() - self._reached >= request_counts.SETTLED

    def _counted(self, requests: Counts) -> Counts:
        """Return the sums over requests with those over lines."""
        server, info = self._counts.server(None), self._info
        requests[LabelledCount("lines", server)] = info.lines
        requests[LabelledCount("unread", server)] = info.lines - info.recognised
        return requests

    def _since(self, counts: Counts) -> Counts:
        """Add the previous counts."""
        total = self._counted(counts)
        total.update(self._base)
        total.subtract(self._zero)
        return total

    def counts(self) -> Counts:
        """Return the counts to export; none ever decreases, even if a request is judged differently later."""
        if self.is_current:
            self._shown |= self._since(self._counts.settled())
        return self._shown

    @property
    def waits(self) -> bool:
        """Whether more counts are to be exported soon."""
        return self._counts.waits

    def findings(self) -> list[Finding]:
        """Return the current findings."""
        unknown = [self._info.path] if self._info.lines and not self._info.recognised else []
        return self._analyzer.standing(unknown=unknown, ended=False)

    def hit_rates(self) -> dict[tuple[str, str], float]:
        """Return the last hit rate of each engine of vLLM, by server and engine."""
        return self._counts.hit_rates

    def server(self, origin: str | None) -> str:
        """Return the label of a server of this log."""
        return self._counts.server(origin)

    def saved(self) -> SavedLog:
        """Return the state for the next run; while the log is read again, that is the state of the last run."""
        if not self.is_current:
            return self._saved
        shown, counted = self.counts(), self._since(self._counts.everything())
        counts = [(series, counted[series], shown[series]) for series in {**shown, **counted}]
        return SavedLog(self.place.key, [file.read() for file in self._files], self._quiet, counts)

    def inherit(self, counts: Counts) -> None:
        """Take over the counts of another log of the same server, which is gone."""
        self._base.update(counts)
        self._shown.update(counts)
        held = [(series, self._base[series], self._shown[series]) for series in {**self._base, **self._shown}]
        self._saved = msgspec.structs.replace(self._saved, counts=held)


def _behind(
    first: tuple[int | None, bytes], pieces: Iterator[tuple[int | None, bytes]]
) -> Iterator[tuple[int | None, bytes]]:
    yield first
    yield from pieces
