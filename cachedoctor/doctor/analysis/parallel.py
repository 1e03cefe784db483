"""Reads logs in several processes, split by files and server runs, with the report of one process."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from io import FileIO

import msgspec

from cachedoctor.doctor import processes
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Shard
from cachedoctor.doctor.analysis.run import PART, chains, drive, drive_chain, feed_all, stored_bytes
from cachedoctor.doctor.processes import Killed, Workers
from cachedoctor.doctor.scratch import scratch_folder
from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.llamacpp.startup import RESTART_MARKS
from cachedoctor.engines.llamacpp.tracker import catalogue
from cachedoctor.inputs.sources.base import SourceError, Told, unheard
from cachedoctor.inputs.sources.file import FileSpan, SpanSource, is_stream, open_log, plain_size
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import AnalysisOptions, CacheDoctorError, GivenOption
from cachedoctor.model.terms import DEFAULTS

LEAST = PART
_BLOCK = 1 << 20
_LINE = 1 << 12
"""Bytes of a start-up line."""
_BACK = 4 << 20
"""Bytes before a cut that are searched for the last request of the run before it."""
_WORDS = (b"build", b"initializing", b"loading model '")
"""Every line that begins a server run has one of these."""
_REQUEST = b"processing task"
_CONTROL = late(rb"[\0\r\x1b]")


def spans(path: str, parts: int, catalogue: Catalogue) -> list[FileSpan]:
    """Cut the file into about ``parts`` spans of about one size; none when it cannot be cut."""
    size = plain_size(path)
    parts = min(parts, size // LEAST)
    if parts < 2:
        return []
    found: list[int] = []
    with open_log(path) as file:
        for number in range(1, parts):
            wanted = max(size * number // parts, found[-1] + LEAST if found else 0)
            cut = _next_cut(file, wanted, size * (number + 1) // parts, catalogue)
            if cut is not None:
                found.append(cut)
        return list(_spans(file, [*found, size])) if found else []


def _spans(file: FileIO, ends: list[int]) -> Iterator[FileSpan]:
    start, line = 0, 1
    for end in ends:
        yield FileSpan(start, end, line)
        file.seek(start)
        left = end - start
        while left and (block := file.read(min(_BLOCK, left))):
            line += block.count(b"\n")
            left -= len(block)
        start = end


def _next_cut(file: FileIO, start: int, end: int, catalogue: Catalogue) -> int | None:
    """Offset of the first line from ``start`` on that begins a life after a life with requests."""
    at = start
    while at < end:
        file.seek(at)
        block = file.read(_BLOCK + _LINE) or b""
        for line in sorted({block.rfind(b"\n", 0, place) + 1 for place in _places(block)}):
            text = block[line : block.find(b"\n", line)]
            if line and _begins_life(text, catalogue) and _follows_requests(file, at + line, catalogue):
                return at + line
        at += _BLOCK
    return None


def _places(block: bytes) -> Iterator[int]:
    for word in _WORDS:
        place = block.find(word)
        while place >= 0:
            yield place
            place = block.find(word, place + 1)


def _begins_life(line: bytes, catalogue: Catalogue) -> bool:
    """Lines with control characters are none: what is read of them is decided where wrappers are taken off."""
    line = line.removesuffix(b"\r")
    if len(line) >= _LINE or _CONTROL.search(line):
        return False
    return any(event.message in RESTART_MARKS for event in catalogue.recognise(line))


def _follows_requests(file: FileIO, place: int, catalogue: Catalogue) -> bool:
    """Whether a request was begun since the last start-up line before ``place``."""
    first = max(0, place - _BACK)
    file.seek(first)
    _, request, since = (file.read(place - first) or b"").rpartition(_REQUEST)
    lines = {since.rfind(b"\n", 0, found) + 1 for found in _places(since)}
    return bool(request) and not any(_begins_life(since[line : since.find(b"\n", line)], catalogue) for line in lines)


_PARTS = 4
"""Parts for each process: server runs have any length, and a process that is done early takes another part."""


class Terms(msgspec.Struct, frozen=True):
    """How every part is analysed."""

    build: int | None
    given: list[GivenOption]
    keeps_requests: bool
    max_unpacked: int
    """Bytes that each input may unpack to."""
    options: AnalysisOptions = DEFAULTS


class _Unit(msgspec.Struct, frozen=True, eq=False):
    """What one process reads: the rotations of a log, or a span of one file."""

    paths: list[str]
    span: FileSpan | None = None
    size: int = 0
    """Bytes of it, as they are stored, that the progress display counts."""


class _Done(msgspec.Struct):
    part: Shard
    line: int
    """Number of its first line in its file."""
    requests: str
    """File that contains them."""
    errors: list[tuple[str, str]]
    """(message, hint) of inputs that could not be read to their end."""


def suits(paths: Iterable[str]) -> bool:
    """Whether all inputs are files: a pipe has to be read as it comes."""
    return not any(path == "-" or is_stream(path) for path in paths)


def feed_parallel(
    analyzer: Analyzer, paths: list[str], jobs: int, terms: Terms, told: Told = unheard
) -> list[SourceError]:
    """Feed every path like ``feed_all``, in ``jobs`` processes; returns the errors of inputs that could not be read.

    ``told`` hears of the bytes of a part when it is done.

    Raises:
        CacheDoctorError: a process was killed.
    """
    catalogue()  # compiled once, before the processes part
    errors: list[SourceError] = []
    plan = list(_plan(paths, jobs))
    busy = min(jobs, sum(map(len, plan)), processes.MOST)
    if busy < 2:
        return feed_all(analyzer, paths, terms.max_unpacked, told)
    with scratch_folder() as folder, _pool(functools.partial(_work, terms, folder), busy) as pool:
        readings = _Readings(pool, plan, told)
        for units in plan:
            for done in readings.of_log(units):
                analyzer.merge(done.part, done.requests, done.line)
                errors += [SourceError(*error) for error in done.errors]
                os.unlink(done.requests)
    return errors


def _pool(work: Callable[[_Unit], _Done], jobs: int) -> AbstractContextManager[Workers[_Unit, _Done]]:
    """Fork where that is safe: nothing has to be imported and compiled again."""
    return processes.running(work, jobs, "fork" if sys.platform == "linux" else "spawn")


class _Readings:
    """The units of all logs: those that wait, and those that were read before their turn came."""

    def __init__(self, pool: Workers[_Unit, _Done], plan: list[list[_Unit]], told: Told) -> None:
        self._pool, self._told = pool, told
        self._waiting = deque(unit for units in plan for unit in units)
        self._running = 0
        self._done: dict[_Unit, _Done] = {}

    def of_log(self, units: list[_Unit]) -> list[_Done]:
        """Return what was read of a log: in parts, or of the whole where a part needs what came before it."""
        done = [self._result(unit) for unit in units]
        if all(before.part.settled and not before.errors for before in done[:-1]):
            return done
        whole = _Unit(units[0].paths)
        self._waiting.appendleft(whole)
        return [self._result(whole)]

    def _result(self, unit: _Unit) -> _Done:
        while unit not in self._done:
            while self._waiting and self._running < self._pool.width:
                self._pool.submit(self._waiting.popleft())
                self._running += 1
            for ended, done in self._pool.wait():
                if isinstance(done, Killed):
                    what = "a process that was reading part of the logs was killed"
                    raise CacheDoctorError(what, "memory may be too small: use fewer --jobs")
                self._running -= 1
                self._done[ended] = done
                self._told(ended.size)
        return self._done.pop(unit)


def _plan(paths: list[str], jobs: int) -> Iterator[list[_Unit]]:
    """Units of each log, in order: one for its rotations, or several of one large file."""
    logs = chains(paths)
    sizes = [plain_size(chain[0]) if len(chain) == 1 else 0 for chain in logs]
    for chain, size in zip(logs, sizes, strict=True):
        share = -(-jobs * _PARTS * size // max(1, sum(sizes)))
        cut = spans(chain[0], share, catalogue()) if len(logs) < _PARTS * jobs else []
        yield [_Unit(chain, span, span.end - span.start) for span in cut] or [_Unit(chain, size=stored_bytes(chain))]


def _work(terms: Terms, folder: str, unit: _Unit) -> _Done:
    analyzer = Analyzer(terms.build, None, terms.given, keeps_requests=terms.keeps_requests, options=terms.options)
    if unit.span is None:
        line, errors = 1, drive_chain(analyzer, unit.paths, terms.max_unpacked)
    else:
        line = unit.span.line
        error = drive(analyzer, SpanSource(unit.paths[0], unit.span), line=line)
        errors = [] if error is None else [error]
    descriptor, path = tempfile.mkstemp(dir=folder)
    os.close(descriptor)
    return _Done(analyzer.part(path), line, path, [(error.message, error.hint) for error in errors])
