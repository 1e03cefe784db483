"""Catalogues and vocabularies of engines whose lines begin with the prefix of a Python logger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue, Event, Message
from cachedoctor.engines.catalogue.heads import HeadPattern
from cachedoctor.knowledge.late_patterns import late


class Field(msgspec.Struct, frozen=True):
    """One field of a message."""

    unit: str
    """``tokens``, ``MiB``, ``ms`` ...; empty for text."""
    meaning: str
    special: Mapping[float, str] = MappingProxyType({})
    """Values that are not plain numbers, and what they mean."""


class LoggerCatalogue(Catalogue):
    """Rows found after the end of a prefix, anywhere in the line: progress bars may be glued before the prefix."""

    def __init__(self, rows: list[Message], prefix: bytes) -> None:
        """``prefix``: pattern from the begin of a line to the message, without groups, and possessive.

        Lines without one are read, too: uvicorn writes none, and people paste messages without.
        """
        self.rows = rows
        self.by_head: dict[tuple[str, bytes], list[Message]] = {}
        heads: set[str] = set()
        self._prefix = prefix
        for row in rows:
            for head in row.heads:
                heads.add(head)
                self.by_head.setdefault(("bare", head.encode()), []).append(row)
        self._begin = re.compile(rb"(?:" + prefix + rb")?+[ \t]*+")
        self.pattern = HeadPattern({"bare": heads}, self._compiled)

    def _compiled(self, heads: Mapping[str, bytes], _: bool) -> re.Pattern[bytes]:
        # The five groups of every catalogue: a slot, a task, and heads in three places, of which here only the last is.
        return re.compile(rb"\n(?:(?!)()()()()|(?:" + self._prefix + rb")?+[ \t]*+(" + heads["bare"] + rb"))")

    def recognise(self, body: bytes) -> list[Event]:
        """Every row that matches the single line ``body`` exactly (one, unless the catalogue is ambiguous)."""
        found = self._begin.match(body)
        start = found.end() if found is not None else 0
        text = b" ".join(body[start:].split())
        events = []
        for row in self.rows:
            if row.may_begin(text):
                fields = row.match(body, start)
                if fields is not None:
                    events.append(Event(row.id, row, fields, -1, -1, 1, body, 0))
        return events


_FROM = rb"[0-9.]{7,15}+:[0-9]{1,5}+"
_ASKED = rb' - "[A-Z]{1,8}+ [^\s"]{1,512}+ HTTP/[0-9.]{1,4}+" [0-9]{3}[\w ]{0,40}+(?=\n)'
ACCESSES = late(rb"(?>([^\n\"]*?INFO:[ \t]{1,6})" + _FROM + rb")(" + _ASKED + rb")(?:\n\1" + _FROM + rb"\2(?=\n))++")
"""Lines of uvicorn that differ only in the client's address."""
_HOST = late(rb"[^\n\"]*?INFO:[ \t]{1,6}([0-9.]{7,15}):[^\n]*+\n?+")


def hosts(event: Event) -> Mapping[str, int]:
    """Client addresses in the lines of ``ACCESSES``, or in a single line, with the number of their requests."""
    host, times = str(event.fields["host"]), len(event.lines)
    if not event.end:
        return {host: 1}
    address = host.rpartition(":")[0]
    if event.whole.count(b" %b:" % address.encode()) == times:  # once in each line: as behind a proxy
        return {address: times}
    return {address.decode(): times for address, times in Counter(_HOST.findall(event.whole)).items()}


Prefix = tuple[dict[str, bytes], int, bytes]
"""Parts before a message by name in their order, the offset at which the message begins, and other text before the
parts."""


class Vocabulary(msgspec.Struct, frozen=True):
    """The words that explain the lines of one engine; its module ``vocabulary`` exports them as ``VOCABULARY``."""

    engine: str
    """Name of the engine in sessions: ``vllm``."""
    rows: list[Message]
    meanings: Mapping[str, str]
    """A sentence or two by id of a message."""
    field: Callable[[str, str], Field | None]
    """Words for a field, by id of the message and name."""
    pair: Callable[[str, str], Field | None]
    """Words for a pair that a line prints by itself, by id of the message and printed name."""
    prefix: Callable[[bytes], Prefix]
    parts: Callable[[str, bytes], str]
    """Words for a part of a prefix, by its name and what is printed."""
    time: Callable[[Mapping[str, bytes]], str | None]
    """The time among the parts of a prefix: ISO 8601, ``--MM-DDTHH:MM:SS`` where no year is printed."""
    process: Callable[[Mapping[str, bytes]], str]
    """Process or ranks among the parts of a prefix; empty if it names none."""
    programs: Mapping[str, str]
    """The program whose versions a row counts, by the row's component."""
    shown: Callable[[Message, str], str]
    """What makes the server print a row, in words, by the row and the letter of its level."""
