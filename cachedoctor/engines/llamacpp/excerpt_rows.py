"""Rows of excerpts: several records in one row, and fields of which some are missing."""

from __future__ import annotations

import re

from cachedoctor.engines.catalogue.base import CLOCK, HOLE, Catalogue, Message
from cachedoctor.knowledge.late_patterns import late


class Partly(dict[str, object]):
    """Fields of a line of which some are missing."""

    def __missing__(self, name: str) -> object:
        raise LacksFieldError(name)


class LacksFieldError(Exception):
    """A field that is needed was left out."""


_MOST = 1 << 14
"""Bytes of a row."""
_NAMED = rb"(?:slot|srv|que|res|cmn) +[a-z_]{3,14}(?:\(\))?: +"
_TIMES = rb"(?:prompt eval|(?<!prompt )eval|total) time +="
_BEFORE = late(rb"(?<=\S)[ \t]+(?=" + _NAMED + rb"|" + _TIMES + rb")")
_BEFORE_CLOCK = late(rb"(?<=\S)[ \t]+(?=" + CLOCK + rb" +[IWED] +(?:" + _NAMED + rb"|\S))")
_CLOCK = late(CLOCK + rb" +[IWED] ")
_FREE = frozenset({"text", "rest", "json", "sentence", "setting", "nolimit", "path", "pairs", "words", "ids"})
"""Kinds of holes that may hold anything."""
_CLOSED = frozenset({"chat_format", "sampler_chain"})
"""Messages that end in such a hole, and hold names of the server there."""
_PLAIN = late(rb"[\w .>?/-]{1,400}")


def parts(lines: list[bytes], catalogue: Catalogue) -> dict[int, list[bytes]]:
    """Return the parts of each row that has several, by its index."""
    before = _BEFORE_CLOCK if any(_CLOCK.match(line) for line in lines) else _BEFORE
    found = {}
    for at, line in enumerate(lines):
        if len(line) > _MOST or before.search(line) is None or _is_whole(line, catalogue):
            continue
        pieces = _parts(line, before, catalogue)
        if len(pieces) > 1:
            found[at] = pieces
    return found


def _parts(line: bytes, before: re.Pattern[bytes], catalogue: Catalogue) -> list[bytes]:
    """The records of a row, as far as each is whole; what follows the last of these stays together."""
    found: list[bytes] = []
    begin = 0
    for blank in before.finditer(line):
        if not _is_whole(line[begin : blank.start()], catalogue):
            break
        found.append(line[begin : blank.start()])
        begin = blank.end()
    return [*found, line[begin:]]


def _is_whole(piece: bytes, catalogue: Catalogue) -> bool:
    return any(event.row is not None and _is_closed(event.row, piece) for event in catalogue.recognise(piece))


def _is_closed(row: Message, piece: bytes) -> bool:
    holes = HOLE.findall(row.template)
    if row.quoted or not holes or row.words.strip() or holes[-1][1] not in _FREE:
        return not row.quoted
    return row.id in _CLOSED and _PLAIN.fullmatch(piece.rpartition(b": ")[2]) is not None
