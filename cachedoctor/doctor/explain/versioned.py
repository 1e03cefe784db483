"""Explains lines of engines that count versions instead of builds: vLLM and SGLang."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import cast

from cachedoctor.doctor.explain import field_words
from cachedoctor.engines.catalogue.base import HOLE, Message, as_pairs
from cachedoctor.engines.catalogue.logger_vocabulary import Vocabulary
from cachedoctor.engines.catalogue.reading import LineReading, RowMatch
from cachedoctor.engines.detect import ENGINES
from cachedoctor.model import Explanation, Level, Part, Reading, Wording

NAMES = ("vllm", "sglang")
_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG", "P": "error text"}
"""By the letters of rows; the words are those of Python's logging."""


@cache
def vocabulary(engine: str) -> Vocabulary:
    """Import the words of an engine."""
    return cast(Vocabulary, importlib.import_module(f"cachedoctor.engines.{engine}.vocabulary").VOCABULARY)


def likely(body: bytes) -> list[str]:
    """Return the engines for which a line looks at first sight."""
    return [engine.name for engine in ENGINES if engine.name in NAMES and engine.looks.search(body) is not None]


def explanation(
    words: Vocabulary, found: RowMatch, reading: LineReading, origin: str | None, body: bytes, undecided: bool
) -> Explanation:
    """Put one reading of a line into words."""
    row = found.row
    same = [r for r in words.rows if r.id == row.id and r is not row and r.component == row.component]
    return Explanation(
        engine=words.engine,
        program=words.programs[row.component],
        message=row.id,
        meaning=words.meanings[row.id],
        text=field_words.text(body[found.start :]),
        origin=origin,
        parts=_parts(words, reading),
        fields=list(_fields(words, found)),
        first=row.first,
        last=row.last,
        builds=_versions(words, row),
        levels=_levels(words, row),
        analyzed=True,
        sample=row.sample,
        others=[Wording(r.first, r.last, field_words.wording(r)) for r in same],
        cut=reading.cut,
        undecided=undecided,
        more=field_words.text(found.more),
    )


def _parts(words: Vocabulary, reading: LineReading) -> list[Part]:
    out = []
    if reading.unknown.strip():
        out.append(Part(field_words.text(reading.unknown).strip(), "no prefix that is known; left aside"))
    out.extend(Part(field_words.text(raw), words.parts(name, raw)) for name, raw in reading.prefix.items())
    return out


def _fields(words: Vocabulary, found: RowMatch) -> Iterator[Reading]:
    kinds = dict(HOLE.findall(found.row.template))
    for name, raw in found.fields:
        pairs = as_pairs(raw) if kinds[name] == "pairs" and raw is not None else {}
        for printed, value in pairs.items():
            yield field_words.paired(printed, value, words.pair(found.row.id, printed))
        if not pairs:
            yield field_words.reading(found.row, name, raw, words.field(found.row.id, name))


def _versions(words: Vocabulary, row: Message) -> str:
    """Words for the versions in which a wording was seen."""
    first, last = (Explanation.version(number) for number in (row.first, row.last))
    seen = f"seen in {first}" if first == last else f"seen in {first} to {last}"
    newest = max(_known(words, row))
    return seen + (" (newer versions were not looked at)" if row.last == newest else "")


def _known(words: Vocabulary, row: Message) -> list[int]:
    """Versions of the program that rows mention, in order."""
    known = {number for r in words.rows if r.component == row.component for number in (r.first, r.last)}
    return sorted(known)


def _levels(words: Vocabulary, row: Message) -> list[Level]:
    begins = [max(int(part[1:]), row.first) for part in row.levels.split()]
    known = [number for number in _known(words, row) if number <= row.last]
    out = []
    for part, (begin, end) in zip(row.levels.split(), pairwise([*begins, row.last + 1]), strict=True):
        last = max((number for number in known if begin <= number < end), default=begin)
        out.append(Level(begin, last, _LEVELS[part[0]], words.shown(row, part[0])))
    return out
