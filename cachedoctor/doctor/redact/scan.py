"""Finds the lines of other engines than llama-server in a block, one by one and all of them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from cachedoctor.doctor.explain import versioned
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.logger_vocabulary import Vocabulary
from cachedoctor.engines.catalogue.spans import Recognised, Spans
from cachedoctor.engines.detect import ENGINES, Engine

_FILE = re.compile(rb"[\w/]+\.py(?=:\d)")


class EngineReader(NamedTuple):
    """What reads and words the lines of one engine."""

    words: Vocabulary | None
    """None for a program that has no words of its own for its lines."""
    rows: tuple[Message, ...]
    spans: Spans
    files: frozenset[bytes]
    """Names of source files in the samples of its rows."""


@cache
def _reader(engine: Engine) -> EngineReader:
    words = versioned.vocabulary(engine.name) if engine.name in versioned.NAMES else None
    catalogue = engine.reader().catalogue
    files = frozenset(name for row in catalogue.rows for name in _FILE.findall(row.sample.encode()))
    return EngineReader(words, tuple(catalogue.rows), Spans(catalogue), files)


class EngineLines:
    """The lines of one log."""

    def __init__(self) -> None:
        self._active: set[tuple[str, str | None]] = set()

    def read(self, data: bytes, origin: str | None = None) -> dict[int, tuple[EngineReader, Recognised]]:
        """Return the lines of ``data`` that begin like messages, by their begin.

        ``data`` begins with the newline before its first line. Once a line looked like one of an engine, all of its
        origin are read as its own: web servers print lines that look like nobody's.
        """
        found: dict[int, tuple[EngineReader, Recognised]] = {}
        for engine in ENGINES:
            if (engine.name, origin) in self._active or engine.looks.search(data) is not None:
                self._active.add((engine.name, origin))
                reader = _reader(engine)
                for line in reader.spans.read(data):
                    known = found.get(line.start)
                    if known is None or (known[1].row is None and line.row is not None):
                        found[line.start] = reader, line
        return found
