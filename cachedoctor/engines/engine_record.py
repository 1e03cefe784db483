"""The record of an engine: how its lines are recognised, and what reads and explains them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from cachedoctor.engines.catalogue.base import Catalogue, Event
from cachedoctor.engines.catalogue.scanner import ScanPlan
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheSample, PrefillBatch, Session

if TYPE_CHECKING:
    from cachedoctor.engines.catalogue.logger import Vocabulary


class Found(Protocol):
    """A place that a look found."""

    def start(self) -> int:
        """Offset in the block."""


class Look(Protocol):
    """A cheap search for lines of an engine in a block."""

    def search(self, data: bytes, /) -> Found | None:
        """Find the first line of the engine; the found place is within this line."""


class _Place(msgspec.Struct, frozen=True):
    offset: int

    def start(self) -> int:
        return self.offset


class Literals:
    """Finds any of a few literals, one by one: ``re`` tries all of them at every byte, which is ten times as slow."""

    def __init__(self, *literals: bytes, sure: re.Pattern[bytes] | None = None) -> None:
        """``sure``: where a literal stands, this is searched for instead."""
        self._literals = literals
        self._sure = sure

    def search(self, data: bytes, /) -> Found | None:
        """Find the first of the literals."""
        places = [place for literal in self._literals if (place := data.find(literal)) >= 0]
        if not places:
            return None
        return _Place(min(places)) if self._sure is None else self._sure.search(data)


class Either:
    """Finds what any of a few looks finds."""

    def __init__(self, *looks: Look) -> None:
        self._looks = looks

    def search(self, data: bytes, /) -> Found | None:
        """Find the first place in the block; after the line of a found place, no other look searches."""
        first: Found | None = None
        for look in self._looks:
            found = look.search(data)
            if found is not None and (first is None or found.start() < first.start()):
                first = found
                data = data[: data.find(b"\n", first.start()) + 1 or None]
        return first


Row = CacheSample | PrefillBatch


class Tracker(Protocol):
    """Turns the events of one origin into sessions, their periods, and rows."""

    session: Session | None
    """The open run of the server; None before any line that only this engine writes."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[Row], None],
    ) -> None:
        """Begin without a line.

        Args:
            path: of the input.
            origin: the server that a wrapper names.
            new_session: makes a session; the tracker sets its engine.
            keep: takes every sample or batch.
        """

    def feed(self, event: Event) -> None:
        """Take the next event."""

    def continue_in(self, path: str) -> None:
        """The log continues in another file."""


class Reader(msgspec.Struct, frozen=True):
    """The catalogue, plan and tracker that read an engine's lines."""

    catalogue: Catalogue
    plan: ScanPlan
    tracker: type[Tracker]


class Engine(msgspec.Struct, frozen=True):
    """A program that writes log lines of its own."""

    name: str
    """Name of the engine in sessions."""
    looks: Look
    """Finds something in any block that holds a line of it; led by a literal, so that other logs lose no time. What
    comes before the line of the first one found is not read: it may have come in another block."""
    reader: Callable[[], Reader]
    """Returns the reader of its lines, whose patterns are compiled then."""
    fork: bool = False
    """A fork of llama-server: from the first line that is found, lines of this origin are the fork's. Those that look
    like llama-server's are read as such, too, but timings, which the reader counts as answers, open no request."""
    wrapped: bool = False
    """Its records are longer than a terminal is wide: in a paste they may be broken into rows."""
    routine: re.Pattern[bytes] | None = None
    """Whole lines of it that recur often, each with the newline before it: nothing else writes these."""
    words: Callable[[], Vocabulary] | None = None
    """Gives the words that explain its lines; None for a program without."""


ACCESS = (
    rb"INFO: {1,6}+[0-9.]{7,15}+:[0-9]{1,5}+ - "
    rb'"[A-Z]{1,8}+ [\w/.-]{1,200}+ HTTP/[0-9.]{1,4}+" [0-9]{3}[\w ]{0,40}+(?=\n)'
)
"""A line of uvicorn."""


def package(name: str, looks: Look, routine: bytes) -> Engine:
    """Return the record of the engine that has a package here; its modules are imported when a line of it comes.

    Its module ``tracker`` has ``READER``, and ``vocabulary`` has ``VOCABULARY``.
    ``routine``: pattern of whole lines that recur often.
    """

    def reader() -> Reader:
        return cast(Reader, importlib.import_module(f"cachedoctor.engines.{name}.tracker").READER)

    def words() -> Vocabulary:
        return cast("Vocabulary", importlib.import_module(f"cachedoctor.engines.{name}.vocabulary").VOCABULARY)

    return Engine(name, looks, reader, wrapped=True, routine=late(rb"(?:\n(?:" + routine + rb"))++"), words=words)
