"""Finds the lines of other engines than llama-server in a block, one by one and all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from cachedoctor.engines.catalogue.logger import Vocabulary
from cachedoctor.engines.catalogue.spans import RecognisedLine, Spans
from cachedoctor.engines.detect import engines
from cachedoctor.engines.engine_record import Engine
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction import holes

_FILE = late(rb"(?<![\w/])[\w/]+\.py(?=:\d)")


class EngineReader(NamedTuple):
    """What reads and words the lines of one engine."""

    words: Vocabulary
    spans: Spans
    files: frozenset[bytes]
    """Names of source files in the samples of its rows."""


class ProgramReader(NamedTuple):
    """What reads the lines of a small program, which has no words for them."""

    spans: Spans
    before: frozenset[bytes]
    """Parts of what comes before the messages in the samples of its rows."""


class Reads(Protocol):
    """What reads lines of one engine."""

    @property
    def spans(self) -> Spans:
        """Finds them."""


Reader = TypeVar("Reader", bound=Reads)


@cache
def _reader(engine: Engine) -> EngineReader:
    if engine.words is None:
        raise LookupError(f"{engine.name} has no words for its lines")
    words = engine.words()
    files = frozenset(name for row in words.rows for name in _FILE.findall(row.sample.encode()))
    return EngineReader(words, Spans(engine.reader().catalogue), files)


@cache
def _program(engine: Engine) -> ProgramReader:
    catalogue = engine.reader().catalogue
    spans, before = Spans(catalogue), set()
    for row in catalogue.rows:
        sample = f"\n{row.sample}\n".encode()
        for line in spans.read(sample):
            before.update(holes.WORD.findall(sample[line.start : line.message]))
    return ProgramReader(spans, frozenset(before))


class _LogLines(Generic[Reader]):
    """The lines of one log that some engines wrote."""

    def __init__(self, engines: list[Engine], reader: Callable[[Engine], Reader]) -> None:
        self._engines, self._reader = engines, reader
        self._active: set[tuple[str, str | None]] = set()

    def read(self, data: bytes, origin: str | None = None) -> dict[int, tuple[Reader, RecognisedLine]]:
        """Return the lines of ``data`` that begin like messages, by their begin.

        ``data`` begins with the newline before its first line. Once a line looked like one of an engine, all of its
        origin are read as its own: web servers print lines that look like nobody's.
        """
        found: dict[int, tuple[Reader, RecognisedLine]] = {}
        for engine in self._engines:
            if (engine.name, origin) in self._active or engine.looks.search(data) is not None:
                self._active.add((engine.name, origin))
                reader = self._reader(engine)
                for line in reader.spans.read(data):
                    known = found.get(line.start)
                    if known is None or (known[1].row is None and line.row is not None):
                        found[line.start] = reader, line
        return found


class EngineLines(_LogLines[EngineReader]):
    """The lines of vLLM and SGLang in one log."""

    def __init__(self) -> None:
        super().__init__([engine for engine in engines() if engine.words], _reader)


class ProgramLines(_LogLines[ProgramReader]):
    """The lines of the small programs around llama.cpp in one log."""

    def __init__(self) -> None:
        super().__init__([engine for engine in engines() if not engine.words], _program)
