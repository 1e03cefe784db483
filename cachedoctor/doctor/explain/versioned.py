"""Explains lines of vLLM and SGLang, with words for the fields of any message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cachedoctor.engines.catalogue.base import HOLE, Message, as_pairs
from cachedoctor.engines.catalogue.logger import Field, Vocabulary
from cachedoctor.engines.catalogue.reading import LineReading, RowMatch
from cachedoctor.engines.detect import ENGINES
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Explanation, Level, Part, Reading, Wording

_LABEL = late(r"(?:^|[,(|] ?)([A-Za-z_][\w.]*(?:\(\))?) ?= ?$")
"""The name that a message prints before a value, ``task.n_tokens = ``; several words are no name."""
_NUMBER = late(r"-?\d{1,15}(?:\.\d{1,15})?(?=$|%|x$| reqs$| tokens(?:/s)?$)")
"""A number and how pairs print its unit."""


def field_reading(row: Message, name: str, raw: bytes | None, known: Field | None) -> Reading:
    """Put a field into words.

    Raises:
        LookupError: nothing describes it; the tables of an engine are complete.
    """
    if known is None:
        raise LookupError(f"{row.id}.{name} has no description")
    value = None if raw is None else text(raw).strip()
    return Reading(name, _label(row, name), value, known.unit, known.meaning, _here(known, value))


def paired(name: str, value: str, known: Field | None) -> Reading:
    """Put a pair that the line itself names into words; newer versions print pairs that are not known."""
    if known is None:
        return Reading(name, name, value, "", "not known: no version that was looked at prints it")
    return Reading(name, name, value, known.unit, known.meaning, _here(known, value))


def wording(row: Message) -> str:
    """Return the message with its fields by name, ``new prompt, n_ctx_slot = <n_ctx_slot>``."""
    return HOLE.sub(r"<\1>", row.template)


def text(raw: bytes) -> str:
    """Decode what a line prints."""
    return raw.decode("utf-8", "replace")


def _here(known: Field, value: str | None) -> str:
    said = ""
    for special, words in known.special.items():
        if value and _is(value, special):
            said = words
    return said


def _is(value: str, special: float) -> bool:
    found = _NUMBER.match(value)
    try:
        return float(found[0] if found is not None else value) == special
    except ValueError:
        return False


def _label(row: Message, name: str) -> str:
    """Return the name that the line prints before the value; that of the catalogue when it prints none."""
    for hole in HOLE.finditer(row.template):
        if hole[1] == name:
            before = row.template[: hole.start()]
            printed = _LABEL.search(before[before.rfind("}") + 1 :])
            return printed[1] if printed else name
    return name


_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "D": "DEBUG", "P": "error text"}
"""By the letters of rows; the words are those of Python's logging."""


def vocabularies() -> list[Vocabulary]:
    """Import the words of all engines that have some."""
    return [engine.words() for engine in ENGINES if engine.words is not None]


def likely(body: bytes) -> list[Vocabulary]:
    """Return the words of the engines for which a line looks at first sight."""
    return [engine.words() for engine in ENGINES if engine.words is not None and engine.looks.search(body) is not None]


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
        text=text(body[found.start :]),
        origin=origin,
        parts=_parts(words, reading),
        fields=list(_fields(words, found)),
        first=row.first,
        last=row.last,
        builds=_versions(words, row),
        levels=_levels(words, row),
        analyzed=True,
        sample=row.sample,
        others=[Wording(r.first, r.last, wording(r)) for r in same],
        cut=reading.cut,
        undecided=undecided,
        more=text(found.more),
    )


def _parts(words: Vocabulary, reading: LineReading) -> list[Part]:
    out = []
    if reading.unknown.strip():
        out.append(Part(text(reading.unknown).strip(), "no prefix that is known; left aside"))
    out.extend(Part(text(raw), words.parts(name, raw)) for name, raw in reading.prefix.items())
    return out


def _fields(words: Vocabulary, found: RowMatch) -> Iterator[Reading]:
    kinds = dict(HOLE.findall(found.row.template))
    for name, raw in found.fields:
        pairs = as_pairs(raw) if kinds[name] == "pairs" and raw is not None else {}
        for printed, value in pairs.items():
            yield paired(printed, value, words.pair(found.row.id, printed))
        if not pairs:
            yield field_reading(found.row, name, raw, words.field(found.row.id, name))


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
