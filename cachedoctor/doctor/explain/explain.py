"""Explains single lines of a log: unwrapped, recognised, every part in words, with the builds that print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from cachedoctor.doctor.analysis.intake import Intake
from cachedoctor.engines import program_words, sentences
from cachedoctor.engines.catalogue.base import HOLE, Event, Message, as_pairs
from cachedoctor.engines.catalogue.logger import Field, Vocabulary
from cachedoctor.engines.catalogue.reading import LineReading, RowMatch, nearest, read, read_logged
from cachedoctor.engines.detect import engines
from cachedoctor.engines.llamacpp.fields import MEANINGS, PARTS, field
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.tracker import PLAN
from cachedoctor.knowledge import builds, log_levels
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Explanation, Level, Line, Part, Reading, Wording

_LABEL = late(r"(?:^|[,(|] ?)([A-Za-z_][\w.]*(?:\(\))?) ?= ?$")
"""The name that a message prints before a value, ``task.n_tokens = ``; several words are not a name."""
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
        return Reading(name, name, value, "", "unknown: no checked version prints this field")
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
"""Level names by the rows' letters; the words are those of Python's logging."""


def engine_vocabularies() -> list[Vocabulary]:
    """Import the words of all engines that have some."""
    return [engine.words() for engine in engines() if engine.words is not None]


def likely_rows(body: bytes) -> list[Vocabulary]:
    """Return the words of the engines for which a line looks at first sight."""
    return [
        engine.words() for engine in engines() if engine.words is not None and engine.looks.search(body) is not None
    ]


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
        parts=_parts_versioned(words, reading),
        fields=list(_fields(words, found)),
        first=row.first,
        last=row.last,
        builds=_versions(words, row),
        levels=_levels_versioned(words, row),
        analyzed=True,
        sample=row.sample,
        others=[Wording(r.first, r.last, wording(r)) for r in same],
        cut=reading.cut,
        undecided=undecided,
        more=text(found.more),
    )


def _parts_versioned(words: Vocabulary, reading: LineReading) -> list[Part]:
    out = []
    if reading.unknown.strip():
        out.append(Part(text(reading.unknown).strip(), "unknown prefix, ignored"))
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
    return seen + (" (newer versions were not checked)" if row.last == newest else "")


def _known(words: Vocabulary, row: Message) -> list[int]:
    """Versions of the program that rows mention, in order."""
    known = {number for r in words.rows if r.component == row.component for number in (r.first, r.last)}
    return sorted(known)


def _levels_versioned(words: Vocabulary, row: Message) -> list[Level]:
    begins = [max(int(part[1:]), row.first) for part in row.levels.split()]
    known = [number for number in _known(words, row) if number <= row.last]
    out = []
    for part, (begin, end) in zip(row.levels.split(), pairwise([*begins, row.last + 1]), strict=True):
        last = max((number for number in known if begin <= number < end), default=begin)
        out.append(Level(begin, last, _LEVELS[part[0]], words.shown(row, part[0])))
    return out


_NAMED_MAX = 3
"""A truncated line that fits more messages than this identifies none of them."""


def explain(data: bytes) -> Iterator[Line]:
    """Explain every line of ``data`` that is not empty, in any wrapper that ``analyze`` knows; nothing raises."""
    intake = Intake("")
    segments = [*intake.feed(data), *(segment for rest in intake.finish() for segment in rest)]
    bodies = [
        (segment.first + i if segment.numbers is None else segment.numbers[i], segment.origin, body)
        for segment in segments
        for i, body in enumerate(segment.data.removesuffix(b"\n").split(b"\n"))
    ]
    for number, origin, body in sorted(bodies, key=lambda b: b[0]):
        if body.strip():
            yield _line(number, origin, body)


def _line(number: int, origin: str | None, body: bytes) -> Line:
    reading = read(ROWS, body)
    likely = likely_rows(body)
    certain = None if reading.found or likely else sentences.recognise(body)
    if certain is not None:
        return Line(number, text(body), [_certain(*certain, origin, body)])
    if not reading.clean and (program := program_words.recognise(body)) is not None:
        return Line(number, text(body), [_of_program(*program, origin, body)])
    if not reading.clean and (likely or not reading.found):
        found = _logged(likely, origin, body) or ([] if reading.found else _logged(engine_vocabularies(), origin, body))
        if found:
            return Line(number, text(body), found)
    if not _named(reading):
        return Line(number, text(body), [], _nearest(body))
    return Line(number, text(body), [_explanation(f, reading, origin, body, rest) for f, rest in _chosen(reading)])


def _certain(row: sentences.Sentence, found: re.Match[str], origin: str | None, body: bytes) -> Explanation:
    """Put a line into words that is certain by itself, whoever writes it."""
    unit = "MiB" if row.id.startswith("disk") else "tokens"
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    return Explanation(
        engine=row.engine or "system",
        program=row.engine or "the system",
        message=row.id,
        meaning=row.meaning,
        text=text(body),
        origin=origin,
        parts=[],
        fields=[
            Reading(name, name, value, unit if name in sentences.MEASURED else "", sentences.FIELDS[name])
            for name, value in values.items()
        ],
        first=1,
        last=1,
        builds="the line has the same meaning in every version that prints it",
        levels=[Level(1, 1, "unknown level", "as printed by the program or the system")],
        analyzed=row.incident is not None,
        sample=row.sample,
        others=[],
    )


def _of_program(engine: str, program: str, row: Message, event: Event, origin: str | None, body: bytes) -> Explanation:
    """Put a line of a program into words that logs numbers of each request."""
    return Explanation(
        engine=engine,
        program=program,
        message=row.id,
        meaning=program_words.MEANINGS[row.component, row.id],
        text=text(body),
        origin=origin,
        parts=[],
        fields=[
            Reading(name, name, str(value), "tokens", program_words.FIELDS[name])
            for name, value in event.fields.items()
            if name in program_words.FIELDS
        ],
        first=1,
        last=1,
        builds="other versions print variants with the same meaning",
        levels=[Level(1, 1, "unknown level", "as printed by the program")],
        analyzed=True,
        sample=row.sample,
        others=[],
    )


def _named(reading: LineReading) -> bool:
    return 0 < len({found.row.id for found in reading.found}) <= _NAMED_MAX


def _logged(vocabularies: Iterable[Vocabulary], origin: str | None, body: bytes) -> list[Explanation]:
    """Explain a line by the engines of which it leaves least aside: without a prefix it may be one of several."""
    readings = [(words, read_logged(words, body)) for words in vocabularies]
    readings = [(words, reading) for words, reading in readings if _named(reading)]
    if any(reading.clean for _, reading in readings):
        readings = [(words, reading) for words, reading in readings if reading.clean]
    return [
        explanation(words, found, reading, origin, body, rest)
        for words, reading in readings
        for found, rest in _chosen(reading)
    ]


def _nearest(body: bytes) -> str:
    """How the most similar message of any engine begins."""
    own = nearest(ROWS, body)
    return max(
        own,
        *(nearest(known.rows, body, known.prefix(body)[1]) for known in engine_vocabularies()),
        key=lambda n: n[0],
    )[1]


def _chosen(reading: LineReading) -> Iterator[tuple[RowMatch, bool]]:
    """Rows to explain, and whether other wordings fit as well: of a cut line the newest wording of each message."""
    if not reading.cut:
        yield from ((found, False) for found in reading.found)
        return
    for message in dict.fromkeys(found.row.id for found in reading.found):
        fitting = [found for found in reading.found if found.row.id == message]
        yield max(fitting, key=lambda found: found.row.last), len(fitting) > 1


def _explanation(
    found: RowMatch, reading: LineReading, origin: str | None, body: bytes, undecided: bool
) -> Explanation:
    row = found.row
    return Explanation(
        message=row.id,
        meaning=MEANINGS[row.id],
        text=text(body[found.start :]),
        origin=origin,
        parts=_parts_explain(reading),
        fields=[field_reading(row, name, raw, field(row.id, name)) for name, raw in found.fields],
        first=row.first,
        last=row.last,
        builds=_builds(row.first, row.last),
        levels=_levels_explain(row),
        analyzed=row.id in PLAN.wanted,
        sample=row.sample,
        others=[Wording(r.first, r.last, wording(r)) for r in ROWS if r.id == row.id and r is not row],
        cut=reading.cut,
        undecided=undecided,
        more=text(found.more),
    )


def _parts_explain(reading: LineReading) -> list[Part]:
    out = []
    for name, raw in reading.prefix.items():
        key = {"level": text(raw).replace("T", "I"), "component": text(raw)}.get(name, name)
        if name == "task" and raw == b"-1":
            key = "no task"
        label = {"id": "id ", "task": "task "}.get(name, "")
        if raw:
            out.append(Part(label + text(raw), PARTS[key]))
    if reading.unknown.strip():
        out.append(Part(text(reading.unknown).strip(), "unknown prefix, ignored"))
    return out


def _builds(first: int, last: int) -> str:
    """Words for the builds in which a wording was seen; those between two samples may have it as well."""
    low, high = builds.oldest(first), builds.newest(last)
    notes = []
    if low is None and high is None:
        notes.append("older and newer builds were not checked")
    elif low is None:
        notes.append("older builds were not checked")
    elif low < first:
        notes.append(f"perhaps from b{low} on")
    if high is None and low is not None:
        notes.append("newer builds were not checked")
    elif high is not None and high > last:
        notes.append(f"perhaps up to b{high}")
    seen = f"seen in b{first}" if first == last else f"seen in b{first} to b{last}"
    return f"{seen} ({', '.join(notes)})" if notes else seen


def _levels_explain(row: Message) -> list[Level]:
    if row.component == "client":
        return [Level(row.first, row.last, "not a log line", "client text, pasted or printed in a prompt")]
    return [
        Level(p.first, p.last, log_levels.WORDS[p.level], _level_text(p))
        for p in log_levels.periods(row.level_at, row.first, row.last)
    ]


def _level_text(period: log_levels.Period) -> str:
    if period.level == "P":
        return (
            "not a separate line; it is part of the line `task id = ..., error: ...` and of the response to the client"
        )
    if period.needs is None:
        return "shown by default"
    if period.last < log_levels.SCALE:
        return "only with -v, which also prints request bodies"
    bodies = ", which also prints request bodies" if period.level == "D" else ""
    return f"only with -lv {period.needs}{bodies}"
