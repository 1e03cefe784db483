"""Lists what a log says, line by line: every line that is a message of the server, as a row of the table of events.

Knows the stages from bytes to messages, and what may be shown of a value. Knows no request, no rule and no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from cachedoctor.doctor.catalogues import single_lines
from cachedoctor.doctor.intake import Intake
from cachedoctor.doctor.naming import printable
from cachedoctor.engines.spans import Hole, Recognised, Spans
from cachedoctor.envelope.clock import wall_time
from cachedoctor.model import Segment
from cachedoctor.report import quoted

_NUMBERS: dict[str, Callable[[bytes], int | float]] = {"d": int, "f": lambda raw: float(raw.split(b"(")[0])}
_PROMPTS = frozenset({"text", "json", "ids"})
"""Kinds of holes in which prompts may stand."""
_LONGEST = 256
"""Code points that are kept of a path, an address and other texts."""
_SHORT = 64
"""Code points of texts that are remembered with what is shown of them: addresses, names, states."""
_BEFORE = re.compile(
    rb"(?:(\d{1,9})\.(\d\d)\.(\d\d\d)\.(\d\d\d) ++)?(?:([IWEDT]) ++)?"
    rb"(?:[^|\n]*\bid ++(\d{1,3}) *+\| *+task ++(-?\d{1,18}))?"
)
"""What stands before a message: clock, level, slot and task."""


class Listing:
    """Feeds on the bytes of one input."""

    def __init__(self, path: str) -> None:
        self._path = printable(path)
        self._intake = Intake(self._path)
        self._spans = Spans(single_lines())
        self._encode = msgspec.json.Encoder().encode

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the rows of the lines that the next bytes complete, as JSON objects."""
        return self._rows(self._intake.feed(chunk))

    def finish(self) -> Iterator[bytes]:
        """Yield the rows of what was still held back."""
        return self._rows(self._intake.finish())

    def _rows(self, segments: list[Segment]) -> Iterator[bytes]:
        found = [row for segment in segments for row in self._segment(segment)]
        if len(segments) > 1:  # several servers in one file
            found.sort(key=lambda row: row["line"])
        yield from map(self._encode, found)

    def _segment(self, segment: Segment) -> Iterator[dict[str, Any]]:
        data, index, counted = b"\n" + segment.data, 0, 1
        for found in self._spans.read(data):
            if found.row is None:
                continue
            index += data.count(b"\n", counted, found.start)
            counted = found.start
            number = segment.number(index)
            stored = segment.stored.get(number)
            before = {"path": self._path, "line": number, "origin": segment.origin and quoted.name(segment.origin)}
            before["time"] = None if stored is None else wall_time(stored)
            yield before | _row(data, found)


def _row(data: bytes, found: Recognised) -> dict[str, Any]:
    before = _BEFORE.match(data, found.start, found.message)
    *clock, level, slot, task = before.groups() if before else (None,) * 7
    uptime = None
    if clock[0] is not None:
        minutes, seconds, millis, micros = (int(part or 0) for part in clock)
        uptime = minutes * 60_000 + seconds * 1000 + millis + micros / 1000
    fields = {hole.name: _value(hole, data[hole.start : hole.end]) for hole in found.holes}
    return {
        "uptime_ms": uptime,
        "level": level and level.decode(),
        "slot": None if slot is None else int(slot),
        "task": None if task is None or task == b"-1" else int(task),
        "message": found.row.id if found.row else None,
        "fields": msgspec.json.encode(fields).decode(),
    }


def _value(hole: Hole, raw: bytes) -> int | float | str:
    convert = _NUMBERS.get(hole.kind)
    if convert is not None:
        return convert(raw)
    text = raw.decode("utf-8", "replace")
    if hole.kind in _PROMPTS:
        return quoted.value(text)
    return _remembered(text) if len(text) <= _SHORT else quoted.value(text, _LONGEST)


@lru_cache(maxsize=4096)
def _remembered(text: str) -> str:
    return quoted.value(text)
