"""Explains single lines of a log: unwrapped, recognised, every part in words, with the builds that print them.

Knows every stage that a line passes, and the words of llama-server; those of engines with versions stand in
``versioned``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cachedoctor.doctor.analysis.intake import Intake
from cachedoctor.doctor.explain import versioned
from cachedoctor.doctor.explain.versioned import field_reading as reading_of
from cachedoctor.doctor.explain.versioned import text, wording
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.logger import Vocabulary
from cachedoctor.engines.catalogue.reading import LineReading, RowMatch, nearest, read, read_logged
from cachedoctor.engines.llamacpp.fields import MEANINGS, PARTS, field
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.tracker import PLAN
from cachedoctor.knowledge import builds, log_levels
from cachedoctor.model import Explanation, Level, Line, Part, Wording

_NAMED_MAX = 3
"""A cut line that fits more messages than this says nothing."""


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
    likely = versioned.likely(body)
    if not reading.clean and (likely or not reading.found):
        found = _logged(likely, origin, body) or (
            [] if reading.found else _logged(versioned.vocabularies(), origin, body)
        )
        if found:
            return Line(number, text(body), found)
    if not _named(reading):
        return Line(number, text(body), [], _nearest(body))
    return Line(number, text(body), [_explanation(f, reading, origin, body, rest) for f, rest in _chosen(reading)])


def _named(reading: LineReading) -> bool:
    return 0 < len({found.row.id for found in reading.found}) <= _NAMED_MAX


def _logged(vocabularies: Iterable[Vocabulary], origin: str | None, body: bytes) -> list[Explanation]:
    """Explain a line by the engines of which it leaves least aside: without a prefix it may be one of several."""
    readings = [(words, read_logged(words, body)) for words in vocabularies]
    readings = [(words, reading) for words, reading in readings if _named(reading)]
    if any(reading.clean for _, reading in readings):
        readings = [(words, reading) for words, reading in readings if reading.clean]
    return [
        versioned.explanation(words, found, reading, origin, body, rest)
        for words, reading in readings
        for found, rest in _chosen(reading)
    ]


def _nearest(body: bytes) -> str:
    """How the most similar message of any engine begins."""
    own = nearest(ROWS, body)
    return max(
        own,
        *(nearest(known.rows, body, known.prefix(body)[1]) for known in versioned.vocabularies()),
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
        parts=_parts(reading),
        fields=[reading_of(row, name, raw, field(row.id, name)) for name, raw in found.fields],
        first=row.first,
        last=row.last,
        builds=_builds(row.first, row.last),
        levels=_levels(row),
        analyzed=row.id in PLAN.wanted,
        sample=row.sample,
        others=[Wording(r.first, r.last, wording(r)) for r in ROWS if r.id == row.id and r is not row],
        cut=reading.cut,
        undecided=undecided,
        more=text(found.more),
    )


def _parts(reading: LineReading) -> list[Part]:
    out = []
    for name, raw in reading.prefix.items():
        key = {"level": text(raw).replace("T", "I"), "component": text(raw)}.get(name, name)
        if name == "task" and raw == b"-1":
            key = "no task"
        label = {"id": "id ", "task": "task "}.get(name, "")
        if raw:
            out.append(Part(label + text(raw), PARTS[key]))
    if reading.unknown.strip():
        out.append(Part(text(reading.unknown).strip(), "no prefix that is known; left aside"))
    return out


def _builds(first: int, last: int) -> str:
    """Words for the builds in which a wording was seen; those between two samples may have it as well."""
    low, high = builds.oldest(first), builds.newest(last)
    notes = []
    if low is None and high is None:
        notes.append("neither older nor newer builds were looked at")
    elif low is None:
        notes.append("older builds were not looked at")
    elif low < first:
        notes.append(f"perhaps from b{low} on")
    if high is None and low is not None:
        notes.append("newer builds were not looked at")
    elif high is not None and high > last:
        notes.append(f"perhaps up to b{high}")
    seen = f"seen in b{first}" if first == last else f"seen in b{first} to b{last}"
    return f"{seen} ({', '.join(notes)})" if notes else seen


def _levels(row: Message) -> list[Level]:
    if row.component == "client":
        return [Level(row.first, row.last, "no log line", "text of a client, pasted or printed in a prompt")]
    return [
        Level(p.first, p.last, log_levels.WORDS[p.level], _level_text(p))
        for p in log_levels.periods(row.level_at, row.first, row.last)
    ]


def _level_text(period: log_levels.Period) -> str:
    if period.level == "P":
        return "not a line of its own: part of the line `task id = ..., error: ...` and of the answer to the client"
    if period.needs is None:
        return "shown by default"
    if period.last < log_levels.SCALE:
        return "only with -v, which prints request bodies as well"
    bodies = ", which prints request bodies as well" if period.level == "D" else ""
    return f"only with -lv {period.needs}{bodies}"
