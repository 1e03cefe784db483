"""Joins records of vLLM and SGLang that a terminal broke into rows of its width.

``(APIServer pid=7) INFO 11-20 23:45:48 [loggers.py:335] Engine 000: Avg prompt``, then `` throughput: 979.7 tokens/s``.
Only for pastes: each of a few hundred lines is compared with all messages.
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.inputs.envelope.shapes import has_no_room, width_of
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Segment

_BEGINS = late(
    rb"[ \t]*(?:\([\w.:-]{1,60}[^()]{0,80}\) ){0,3}\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::[ \t]|\s{1,4}\d\d-\d\d )"
    rb"|(?:\([\w.:-]{1,60}[^()]{0,80}\) ?){0,3}\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"
    rb"|(?:INFO|WARN|VERB|ERR) +\[|slot |srv |={8} "
)
"""A row that begins a record: of vLLM, of uvicorn, of SGLang, of LMCache after the name of its process; or of a
llama-server in the same log."""
_ROWS = 80
"""Maximum rows of one record: the settings that vLLM prints at its start fill about 40 rows of 80 columns."""
_EVIDENCE = 3
"""Minimum rows that seem to continue in the next before the widest row is taken as the terminal's width."""
_WORDS = 12
"""Maximum rows that are tried when no row shows that the record continues."""


def joined(segment: Segment, catalogue: Catalogue) -> tuple[Segment, int]:
    """Join rows that a catalogue recognises as one record; return the segment, and the number of joined rows."""
    rows = segment.data.removesuffix(b"\n").split(b"\n")
    widths = list(map(width_of, rows))
    widest, out, at = max(widths), [], 0
    wrapped = _goes_on(rows, widths, widest) >= _EVIDENCE
    while at < len(rows):
        record, used = rows[at], 1
        if _BEGINS.match(record):
            end = _end(rows, at)
            ways = _ways(rows[at:end], widths[at:end], widest) if end > at + 1 else []
            ways.insert(len(ways) if wrapped else 0, (record, 1))
            record, used = max(ways, key=lambda way: _said(way[0], catalogue))
        out += [record, *[b""] * (used - 1)]
        at += used
    more = len(rows) - sum(map(bool, out)) - rows.count(b"")
    if not more:
        return segment, 0
    numbers = segment.numbers or list(range(segment.first, segment.first + len(rows)))
    return msgspec.structs.replace(segment, data=b"\n".join(out) + b"\n", numbers=numbers), more


def _goes_on(rows: list[bytes], widths: list[int], widest: int) -> int:
    """How many rows seem to continue in the next: the next one begins no record, and its first word did not fit."""
    pairs = zip(rows[1:], widths, strict=False)
    return sum(not _BEGINS.match(row) and has_no_room(width, row, widest) for row, width in pairs)


def _end(rows: list[bytes], at: int) -> int:
    """Index after the last row that may continue the record that begins at ``at``."""
    end = at + 1
    while end < min(len(rows), at + _ROWS) and rows[end].strip() and not _BEGINS.match(rows[end]):
        end += 1
    return end


def _ways(rows: list[bytes], widths: list[int], widest: int) -> list[tuple[bytes, int]]:
    """Give the possible records that begin in the first row, the likeliest first, and how many rows each uses."""
    full, tight = _by_width(rows, widths, widest), _tight(rows, widths, widest)
    ways = [full] if full[1] == tight else [_by_words(rows, tight), full]
    return ways + [_by_words(rows, used) for used in range(2, min(len(rows), _WORDS) + 1)]


def _tight(rows: list[bytes], widths: list[int], widest: int) -> int:
    """How many rows, from the first, end where the next word did not fit."""
    for used in range(1, len(rows)):
        if not has_no_room(widths[used - 1], rows[used], widest):
            return used
    return len(rows)


def _by_width(rows: list[bytes], widths: list[int], widest: int) -> tuple[bytes, int]:
    """Join rows as long as they are full; terminals do not copy a space at the end of a row."""
    record, used = rows[0], 1
    while used < len(rows) and widths[used - 1] >= widest - 1:
        record += (b"" if widths[used - 1] == widest else b" ") + rows[used]
        used += 1
    return record, used


def _by_words(rows: list[bytes], used: int) -> tuple[bytes, int]:
    """Join rows that were broken between words."""
    return b" ".join(row.strip() for row in rows[:used]), used


def _said(record: bytes, catalogue: Catalogue) -> int:
    """How many fields of a message a record has; -1 if it is not one."""
    events = catalogue.recognise(record)
    return max((sum(map(_size, event.fields.values())) for event in events), default=-1)


def _size(value: object) -> int:
    """How many fields a value counts as: for pairs of names and values, those that have a value."""
    return sum(map(bool, value.values())) if isinstance(value, dict) else value is not None
