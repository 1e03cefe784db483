"""Redacts the lines of vLLM and SGLang: which lines they are, and how each is written anew.

Knows their catalogues and prefixes. Knows no wrapper and no line of llama-server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from cachedoctor.doctor import versioned
from cachedoctor.doctor.restating import Restating
from cachedoctor.engines.base import Message
from cachedoctor.engines.measured import ENGINES, Engine
from cachedoctor.engines.spans import Recognised, Spans
from cachedoctor.engines.vocabulary import Vocabulary
from cachedoctor.redact.holes import NUMBERS
from cachedoctor.redact.lines import UNKNOWN
from cachedoctor.redact.tokens import Tokens

_FILE = re.compile(rb"[\w/]+\.py(?=:\d)")
_PROCESS = re.compile(
    rb"(?:APIServer|ApiServer|EngineCore|EngineCoreProc|Worker|VllmWorker|VllmWorkerProcess|MainProcess|ProcessWrapper"
    rb"|DPCoordinator|RayWorkerProc)(?:[_-](?:DP|PP|TP|EP|CP|DCP|PCP)?\d{1,5}){0,5}"
)
_PLACE = re.compile(rb"([^\s\[\]]+)(:\d{1,5}\] ?)\Z")


class _Reader(NamedTuple):
    """What reads and words the lines of one engine."""

    words: Vocabulary
    spans: Spans
    files: frozenset[bytes]
    """Names of source files in the samples of its rows."""


@cache
def _reader(engine: Engine) -> _Reader:
    words = versioned.vocabulary(engine.name)
    files = frozenset(name for row in words.rows for name in _FILE.findall(row.sample.encode()))
    return _Reader(words, Spans(engine.reader().catalogue), files)


class Logged:
    """The lines of one log."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._restating = Restating(tokens)
        self._engines = [engine for engine in ENGINES if engine.name in versioned.NAMES]
        self._active: set[str] = set()

    def read(self, data: bytes) -> dict[int, tuple[_Reader, Recognised]]:
        """Return the lines of ``data`` that begin like messages, by their begin.

        ``data`` begins with the newline before its first line. Once a line looked like one of an engine, all are read
        as its own: web servers print lines that look like nobody's.
        """
        found: dict[int, tuple[_Reader, Recognised]] = {}
        for engine in self._engines:
            if engine.name in self._active or engine.looks.search(data) is not None:
                self._active.add(engine.name)
                reader = _reader(engine)
                for line in reader.spans.read(data):
                    known = found.get(line.start)
                    if known is None or (known[1].row is None and line.row is not None):
                        found[line.start] = reader, line
        return found

    def write(self, data: bytes, reader: _Reader, found: Recognised) -> bytes:
        """Write a line anew; of one that only begins like a message the begin stays."""
        prefix = self._prefix(reader, data[found.start : found.message])
        rest = data[found.end : found.stop]
        if found.row is None:
            blank = b" " if rest[:1].isspace() else b""
            return prefix + data[found.message : found.end] + (blank + UNKNOWN if rest.strip() else b"")
        parts = [prefix, *self._values(reader, found.row, data, found)]
        if rest.strip():
            parts.append(b" " + self._tokens.give("text", rest))
        return b"".join(parts)

    def _values(self, reader: _Reader, row: Message, data: bytes, found: Recognised) -> Iterator[bytes]:
        done = found.message
        for hole in found.holes:
            raw = data[hole.start : hole.end]
            if hole.kind in NUMBERS and not raw.endswith(b")"):
                continue
            yield data[done : hole.start]
            yield self._restating.value(reader.words, row, hole.name, hole.kind, raw)
            done = hole.end
        yield data[done : found.end]

    def _prefix(self, reader: _Reader, prefix: bytes) -> bytes:
        """Keep process, time, level and place; what else stands before a message is a user's, or a progress bar."""
        parts, _, unknown = reader.words.prefix(prefix)
        known = prefix[len(unknown) :]
        if not parts:
            place = _PLACE.search(unknown)
            known = b"[" + place[0] if place is not None else b""
            unknown = unknown[: place.start()] if place is not None else unknown
        if parts.get("process") and not _PROCESS.fullmatch(parts["process"]):
            known = known.replace(parts["process"], b"Process", 1)
        before = self._tokens.give("text", unknown)
        return (before + b" " if before else b"") + b"".join(self._places(reader, known))

    def _places(self, reader: _Reader, known: bytes) -> Iterator[bytes]:
        """Keep the name of a source file that the engine has."""
        place = _PLACE.search(known.rstrip() + b" ") if b".py:" in known else None
        if place is None or place[1] in reader.files:
            yield known
        else:
            yield known[: place.start(1)]
            yield place[1].rpartition(b"/")[2] if place[1].rpartition(b"/")[2] in reader.files else b"x.py"
            yield known[place.end(1) :]
